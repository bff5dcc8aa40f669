"use strict";

// Tries a step without saving the flow.
