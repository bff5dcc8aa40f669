// JSON as text: laying it out, and where it can't be read.
"use strict";

window.ToolFlow = window.ToolFlow || {};

// Only white space changes: reading and writing the value would round long numbers.
window.ToolFlow.layOutJson = (text) => {
  let depth = 0;
  let result = "";
  let last = "";
  const startLine = () => "\n" + "  ".repeat(depth);
  for (const token of text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    const closes = token === "}" || token === "]";
    if (closes) depth -= 1;
    if (closes ? !"{[".includes(last) : ["{", "[", ","].includes(last)) result += startLine();
    result += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    last = token;
  }
  return result;
};

// What the browser says of a text that it can't read, as a sentence.
window.ToolFlow.describeJsonError = (text, message) => {
  const lines = /line (\d+) column (\d+)/.exec(message);
  if (lines) return `Line ${lines[1]}, column ${lines[2]}: this is not JSON.`;
  const at = /position (\d+)/.exec(message);
  // Not every browser names the place of every mistake.
  if (!at) return "This is not JSON yet.";
  const before = text.slice(0, Number(at[1])).split("\n");
  return `Line ${before.length}, column ${before[before.length - 1].length + 1}: this is not JSON.`;
};
