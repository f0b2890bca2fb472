//! Plans as people read them.

use std::fmt;

use super::{Action, Plan, Problem};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            writeln!(f, "nothing to do")?;
        }
        for (id, step) in self.steps.iter().enumerate() {
            write!(f, "{:>4}  {}", id + 1, step.action)?;
            if !step.after.is_empty() {
                let after: Vec<String> = step.after.iter().map(|id| (id + 1).to_string()).collect();
                write!(f, "  (after {})", after.join(", "))?;
            }
            writeln!(f)?;
        }
        for note in &self.notes {
            writeln!(f, "   *  {note}")?;
        }
        for problem in &self.problems {
            writeln!(f, "   !  {problem}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            Some(rule) => write!(f, "{} rule {rule}: {}", self.resource, self.kind),
            None => write!(f, "{}: {}", self.resource, self.kind),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateNetwork { network, space } => write!(f, "create network {network} with {space}"),
            Self::DeleteNetwork { network } => write!(f, "delete network {network}"),
            Self::AdoptNetwork { network, existing } => {
                write!(f, "adopt network {network} with {}", existing.space)
            }
            Self::ReleaseNetwork { network } => write!(f, "let go network {network}"),
            Self::AttachResource { resource, network } => {
                write!(f, "attach resource {resource} in network {network}")
            }
            Self::DetachResource { resource } => write!(f, "detach resource {resource}"),
            Self::CreateResource { resource, network } => {
                write!(f, "create resource {resource} in network {network}")
            }
            Self::DeleteResource { resource } => write!(f, "delete resource {resource}"),
            Self::Close { resource, change } => {
                let names: Vec<_> = change.unset.iter().map(|entry| entry.name.as_str()).collect();
                write!(f, "close {resource}: {}", names.join(", "))
            }
            Self::Open { resource, change } => {
                write!(f, "open {resource}:")?;
                for (place, entry) in change.set.iter().enumerate() {
                    let targets: Vec<String> =
                        entry.targets().iter().take(4).map(ToString::to_string).collect();
                    let more = entry.targets().len().saturating_sub(targets.len());
                    let comma = if place == 0 { "" } else { ";" };
                    write!(f, "{comma} {} ({} {}", entry.name, entry.traffic, targets.join(" "))?;
                    if more > 0 {
                        write!(f, " and {more} more")?;
                    }
                    write!(f, ")")?;
                }
                Ok(())
            }
            Self::CreatePeering { peering } => {
                write!(f, "peer {} and {}", peering.ends()[0], peering.ends()[1])
            }
            Self::DeletePeering { peering } => {
                write!(f, "unpeer {} and {}", peering.ends()[0], peering.ends()[1])
            }
            Self::CreateNat { network } => write!(f, "create NAT of {network}"),
            Self::DeleteNat { network } => write!(f, "delete NAT of {network}"),
            Self::CreateGateway { gateway, asn } => write!(f, "create gateway {gateway} with AS {asn}"),
            Self::DeleteGateway { gateway } => write!(f, "delete gateway {gateway}"),
            Self::CreateLink { link, bgp, .. } => {
                write!(f, "link {} and {} by {} tunnels", link.ends()[0], link.ends()[1], bgp.len())?;
                bgp.iter().try_for_each(|pair| write!(f, " {}-{}", pair.a, pair.b))
            }
            Self::DeleteLink { link } => write!(f, "unlink {} and {}", link.ends()[0], link.ends()[1]),
        }
    }
}
