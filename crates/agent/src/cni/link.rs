//! Which of the node's links leads to a Pod, and whether what passes through it can be guarded there (pure).

use node_kernel::link::Link;

use super::ask::Fault;

/// The node's end of a Pod's link. `namespace` is the Pod's, as the node numbers it; `named` are the links that the plugins before say they
/// have made on the node.
pub fn node_end(links: &[Link], namespace: Option<i32>, named: &[String]) -> Result<String, Fault> {
    let is_named = |link: &&&Link| named.contains(&link.name);
    let leads = |link: &&Link| link.leads_elsewhere && namespace.is_some() && link.namespace == namespace;
    let leading: Vec<&Link> = links.iter().filter(leads).collect();
    let end = match leading.as_slice() {
        [end] => end,
        [] => {
            let there: Vec<_> = links.iter().filter(|link| link.leads_elsewhere).collect();
            one(there.iter().filter(is_named).copied()).ok_or_else(|| none(named))?
        }
        several => one(several.iter().filter(is_named).copied()).ok_or_else(|| {
            let names: Vec<_> = several.iter().map(|link| link.name.as_str()).collect();
            let text =
                format!("{} all lead to the Pod, and one link of a Pod can be guarded", names.join(", "));
            Fault::new(Fault::LINK, text, "")
        })?,
    };
    match end.master {
        None => Ok(end.name.clone()),
        Some(master) => Err(switched(end, links.iter().find(|link| link.index == master))),
    }
}

fn one<'a>(mut links: impl Iterator<Item = &'a Link>) -> Option<&'a Link> {
    links.next().filter(|_| links.next().is_none())
}

fn none(named: &[String]) -> Fault {
    let text = match named {
        [] => "no link of this node leads to the Pod".to_owned(),
        named => format!(
            "none of {}, or more than one, is a link of this node that leads to the Pod",
            named.join(", ")
        ),
    };
    let details = "a network that gives each Pod a link of its own on the node is needed (ptp, Calico, and others that route); macvlan, ipvlan and SR-IOV do not";
    Fault::new(Fault::LINK, text, details)
}

/// What passes between ports is not routed, and routes are where policies are.
fn switched(end: &Link, master: Option<&Link>) -> Fault {
    let of = match master {
        Some(master) if master.is_bridge => format!("the bridge {}", master.name),
        Some(master) => master.name.clone(),
        None => "another link".to_owned(),
    };
    let text = format!(
        "{} is a port of {of}, whose ports reach each other unseen: the Pod cannot be guarded",
        end.name
    );
    Fault::new(Fault::LINK, text, "a network that routes is needed (ptp, Calico)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, namespace: Option<i32>, master: Option<u32>) -> Link {
        Link {
            index,
            name: name.into(),
            leads_elsewhere: namespace.is_some(),
            namespace,
            is_bridge: name == "cni0",
            master,
        }
    }

    #[test]
    fn the_link_is_the_one_that_leads_to_the_pod() {
        let links = [
            link(1, "eth0", None, None),
            link(2, "veth1", Some(1), None),
            link(3, "veth2", Some(2), None),
            link(4, "veth3", Some(2), None),
            link(5, "cni0", None, None),
            link(6, "veth4", Some(3), Some(5)),
            link(7, "veth5", Some(4), Some(1)),
        ];
        let end = |namespace, named: &[&str]| {
            let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
            node_end(&links, namespace, &named).map_err(|fault| (fault.code, fault.text))
        };
        assert_eq!(end(Some(1), &[]), Ok("veth1".into()), "whatever was said of it");
        assert_eq!(end(Some(1), &["veth9"]), Ok("veth1".into()), "and whatever was said wrongly");
        assert_eq!(end(Some(2), &["veth3", "dummy"]), Ok("veth3".into()));
        assert!(end(Some(2), &[]).unwrap_err().1.contains("veth2, veth3 all lead"));
        assert_eq!(end(None, &["veth1", "eth0"]), Ok("veth1".into()), "its namespace cannot be opened");
        for named in [&["eth0"][..], &["veth1", "veth2"], &["gone"], &[]] {
            assert_eq!(end(None, named).unwrap_err().0, Fault::LINK, "{named:?}");
        }
        assert!(end(Some(3), &["cni0", "veth4"]).unwrap_err().1.contains("a port of the bridge cni0"));
        assert!(end(Some(4), &[]).unwrap_err().1.contains("a port of eth0"));
        assert_eq!(end(Some(9), &[]).unwrap_err().0, Fault::LINK);
    }
}
