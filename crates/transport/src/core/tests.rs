//! The core against a naive oracle: whatever the order, a node that replays its frames holds what it should.

mod oracle;
mod plain;
mod scenarios;
