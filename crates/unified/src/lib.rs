//! No code. The manifest says what this is for.
