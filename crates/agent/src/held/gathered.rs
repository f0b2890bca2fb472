//! The messages of a step that is not whole yet, as their bytes.
//!
//! A first step is all that a node needs to know: decoded it would be ten times as large, for as long as it comes in.

use prost::Message as _;
use wire::trestle::v1::ToNode;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered(Vec<Box<[u8]>>);

impl Gathered {
    pub fn push(&mut self, message: &ToNode) {
        self.0.push(message.encode_to_vec().into());
    }

    /// One after the other, in the order they came.
    pub fn messages(&self) -> impl Iterator<Item = ToNode> + '_ {
        self.encoded().map(|bytes| ToNode::decode(bytes).expect("it was encoded here"))
    }

    /// The same, as they go to disk.
    pub fn encoded(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|bytes| &**bytes)
    }
}
