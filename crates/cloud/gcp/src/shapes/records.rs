//! Private zones of Cloud DNS, and what is in them.

use crate::mark::Remark;

shapes! {
    Zone {
        both { name: String, }
        sent { description: Remark, }
        said { dns_name: &'static str, visibility: &'static str, private_visibility_config: Visibility, }
    }

    VisibleIn {
        said {
            /// With the host.
            network_url: String,
        }
    }

    /// Records of one name and type. To be removed they are written back as they were read.
    RecordSet {
        both { name: String, #[serde(rename = "type")] kind: String, }
        sent { ttl: u32, }
        maybe { rrdatas: Vec<String>, }
        rest { rest }
    }

    RecordChange {
        maybe { additions: Vec<RecordSet>, deletions: Vec<RecordSet>, }
    }

    Visibility { said { networks: Vec<VisibleIn>, } }
}
