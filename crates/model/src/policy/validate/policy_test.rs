//! PolicyTest. Whether its ends are there is known when it runs.

use super::Report;
use crate::{ProtocolClass, policy::policy_test::PolicyTest};

impl Report {
    pub(super) fn policy_test(&mut self, test: &PolicyTest) {
        if test.spec.tests.is_empty() {
            self.say("spec.tests", "at least one test is needed");
        }
        for (i, one) in test.spec.tests.iter().enumerate() {
            let base = format!("spec.tests[{i}]");
            for (field, end) in [("from", &one.from), ("to", &one.to)] {
                if end.trim().is_empty() {
                    self.say(format!("{base}.{field}"), "name an end, as `trestle explain` takes it");
                }
            }
            let class = match one.protocol.as_str() {
                "" => None,
                text => match text.parse::<ProtocolClass>() {
                    Ok(class) => Some(class),
                    Err(err) => {
                        self.say(format!("{base}.protocol"), err.to_string());
                        None
                    }
                },
            };
            if let Some(port) = one.port {
                if !(1..=65535).contains(&port) {
                    self.say(format!("{base}.port"), format!("{port} is not a port between 1 and 65535"));
                } else if class.is_some_and(|class| !class.has_ports()) {
                    self.say(format!("{base}.port"), format!("{} has no ports", one.protocol));
                }
            }
            if one.expected().is_none() {
                self.say(format!("{base}.expect"), format!("`{}` is not one of allow and deny", one.expect));
            }
        }
    }
}
