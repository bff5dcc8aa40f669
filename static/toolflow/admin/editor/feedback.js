"use strict";

// What the editor says while one types.
