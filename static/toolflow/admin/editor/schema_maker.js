"use strict";

// Makes schemas from examples, types and tables.
