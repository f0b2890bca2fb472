//! Without a build script, cargo does not look at what those of other rooms need.

fn main() {}
