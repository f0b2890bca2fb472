//! Whose an object is, and what for: a mark, which is the object's description.

use ipnet::Ipv4Net;
use model::{PeeringName, Segment, Site};
use serde::{Deserialize, Serialize};

use crate::shapes::shapes;

/// What Google calls a description: a mark of ours, written as JSON, or whatever somebody else wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Remark(String);

impl Remark {
    pub(crate) fn mark(&self) -> Option<Mark> {
        serde_json::from_str::<Envelope>(&self.0).ok().map(|envelope| envelope.trestle)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl From<Mark> for Remark {
    fn from(trestle: Mark) -> Self {
        Self(serde_json::to_string(&Envelope { trestle }).expect("a mark is text, numbers and lists of them"))
    }
}

shapes! {
    /// What a mark says: the owner and the site of an object, and what its name hides.
    Mark {
        both { owner: String, site: String, }
        maybe {
            name: Option<Segment>,
            region: Option<Segment>,
            peer: Option<Site>,
            peering: Option<PeeringName>,
            /// The two VPCs of a peering that somebody asked for.
            pair: Option<String>,
            /// Of an adopted network: the range that instances are attached from. Of a cluster's network: all of its ranges together.
            space: Option<Ipv4Net>,
            /// Of an attached instance: which one it is.
            instance: Option<String>,
            /// Stands for a tunnel's key, which cannot be read.
            key: Option<String>,
            /// Of a firewall that is an entry of a permit list, or a part of one: the entry's own name and tags.
            entry: Option<String>,
            tags: Vec<String>,
            /// Targets that the rule names itself, by their place in the ranges; all of them if it is `all`.
            literal: Vec<usize>,
            all: bool,
        }
    }

    Envelope { both { trestle: Mark, } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects in users' projects have marks of earlier versions; they must be read, and be written the same.
    #[test]
    fn marks_are_written_as_ever() {
        let written = [
            r#"{"trestle":{"owner":"o","site":"ns.gcp"}}"#,
            r#"{"trestle":{"owner":"o","site":"ns.gcp","name":"vm","region":"us-west1","instance":"projects/p/zones/z/instances/i"}}"#,
            r#"{"trestle":{"owner":"o","site":"ns.gcp","peer":"ns.aws","key":"abc"}}"#,
            r#"{"trestle":{"owner":"o","site":"ns.gcp","entry":"a rule","tags":["t"],"literal":[0,2]}}"#,
            r#"{"trestle":{"owner":"o","site":"ns.gcp","entry":"a rule","all":true}}"#,
        ];
        for text in written {
            let remark: Remark = serde_json::from_value(text.into()).unwrap();
            assert_eq!(Remark::from(remark.mark().unwrap()), remark);
        }
        for text in ["", "a firewall for the web", "{}", r#"{"trestle":{"owner":"o"}}"#] {
            assert_eq!(Remark(text.to_owned()).mark(), None, "{text}");
        }
    }
}
