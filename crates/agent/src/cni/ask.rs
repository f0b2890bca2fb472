//! What a runtime asks (pure): its environment and its document, judged, and faults in the words of the specification.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    endpoints::{Container, Pod},
    local::SOCKET,
};

/// Of the documents that are understood; all of them have the same words for what is read here.
pub const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Errors are told in it where nothing else is known.
pub const NEWEST: &str = "1.1.0";
/// Seconds for which a Pod's start waits for a controller to cover it.
const WAIT: u64 = 5;
/// Runtimes give up after minutes.
const MOST_WAIT: u64 = 60;

/// What is wrong, as CNI tells it.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: u32,
    pub text: String,
    pub details: String,
}

impl Fault {
    pub const VERSION: u32 = 1;
    pub const ENVIRONMENT: u32 = 4;
    pub const READ: u32 = 5;
    pub const DECODE: u32 = 6;
    pub const CONFIGURATION: u32 = 7;
    /// The runtime tries again.
    pub const LATER: u32 = 11;
    pub const NOT_AVAILABLE: u32 = 50;
    /// What is attached is not what should be.
    pub const DIFFERS: u32 = 100;
    /// The Pod's link cannot be guarded.
    pub const LINK: u32 = 101;
    pub const REFUSED: u32 = 102;

    pub fn new(code: u32, text: impl Into<String>, details: impl Into<String>) -> Self {
        Self { code, text: text.into(), details: details.into() }
    }

    pub fn document(&self, version: &str) -> Value {
        json!({"cniVersion": version, "code": self.code, "msg": self.text, "details": self.details})
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// One call.
#[derive(Debug)]
pub struct Asked {
    pub verb: Verb,
    pub version: String,
    pub container: Container,
    /// A file that is the container's network namespace; empty where that is gone.
    pub namespace: PathBuf,
    arguments: Arguments,
    network: Network,
}

/// What the runtime says of the Pod.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    namespace: String,
    name: String,
    uid: String,
}

/// The plugin's part of a network configuration. What else is in it is for others.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Network {
    cni_version: String,
    name: String,
    /// What the plugins before have made; passed on as it is.
    prev_result: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid: Option<Vec<Valid>>,
    /// What the same is called by earlier runtimes.
    #[serde(rename = "cni.dev/attachments")]
    valid_before: Option<Vec<Valid>>,
    /// The agent's.
    socket: Option<PathBuf>,
    wait_seconds: Option<u64>,
}

/// A container that the runtime has still.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct Valid {
    #[serde(rename = "containerID")]
    pub container: String,
    #[serde(rename = "ifname")]
    pub interface: String,
}

/// What the plugins before have made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Links on the node.
    pub links: Vec<String>,
    /// The Pod's.
    pub addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
struct MadeDocument {
    #[serde(default)]
    interfaces: Vec<MadeInterface>,
    #[serde(default)]
    ips: Vec<MadeAddress>,
}

#[derive(Deserialize)]
struct MadeInterface {
    #[serde(default)]
    name: String,
    #[serde(default)]
    sandbox: String,
}

#[derive(Deserialize)]
struct MadeAddress {
    address: String,
}

/// What a document says of its version, whatever else is wrong with it.
pub fn version_of(text: &[u8]) -> String {
    let version =
        serde_json::from_slice::<Network>(text).map(|network| network.cni_version).unwrap_or_default();
    if VERSIONS.contains(&version.as_str()) { version } else { NEWEST.to_owned() }
}

impl Asked {
    pub fn read(text: &[u8], environment: impl Fn(&str) -> String) -> Result<Self, Fault> {
        let verb = verb(&environment("CNI_COMMAND"))?;
        let network: Network = match serde_json::from_slice(text) {
            Ok(network) => network,
            // Whoever asks which versions are understood may have none to say.
            Err(_) if verb == Verb::Version && text.trim_ascii().is_empty() => Network::default(),
            Err(err) => {
                let text = "the network configuration cannot be read";
                return Err(Fault::new(Fault::DECODE, text, err.to_string()));
            }
        };
        let version = match (network.cni_version.as_str(), verb) {
            ("", Verb::Version) => NEWEST.to_owned(),
            (version, Verb::Version) => version.to_owned(),
            (version, _) if VERSIONS.contains(&version) => version.to_owned(),
            (version, _) => {
                let text = format!("cniVersion {version:?} is not supported; {} are", VERSIONS.join(", "));
                return Err(Fault::new(Fault::VERSION, text, ""));
            }
        };
        let container = Container {
            id: environment("CNI_CONTAINERID"),
            interface: environment("CNI_IFNAME"),
            network: network.name.clone(),
        };
        let namespace = environment("CNI_NETNS").into();
        let arguments = Arguments::read(&environment("CNI_ARGS"));
        let asked = Self { verb, version, container, namespace, arguments, network };
        asked.check().map(|()| asked)
    }

    fn check(&self) -> Result<(), Fault> {
        if matches!(self.verb, Verb::Gc | Verb::Status | Verb::Version) {
            return Ok(());
        }
        let Container { id, interface, .. } = &self.container;
        for (name, value) in [("CNI_CONTAINERID", id), ("CNI_IFNAME", interface)] {
            if !is_name(value) {
                return Err(Fault::new(Fault::ENVIRONMENT, format!("{name} {value:?} cannot be used"), ""));
            }
        }
        Ok(())
    }

    pub fn socket(&self) -> PathBuf {
        self.network.socket.clone().unwrap_or_else(|| SOCKET.into())
    }

    pub fn wait_seconds(&self) -> u64 {
        self.network.wait_seconds.unwrap_or(WAIT).min(MOST_WAIT)
    }

    /// What the runtime has still; none if it does not say.
    pub fn valid(&self) -> Option<BTreeSet<Valid>> {
        let Network { valid, valid_before, .. } = &self.network;
        valid.as_ref().or(valid_before.as_ref()).map(|valid| valid.iter().cloned().collect())
    }

    pub fn pod(&self) -> Result<Pod, Fault> {
        let Arguments { namespace, name, .. } = &self.arguments;
        if namespace.is_empty() || name.is_empty() {
            let text = "CNI_ARGS names no Pod: K8S_POD_NAMESPACE and K8S_POD_NAME are needed";
            return Err(Fault::new(Fault::ENVIRONMENT, text, ""));
        }
        let pod = format!("{namespace}/{name}").parse::<Pod>();
        pod.map_err(|err| Fault::new(Fault::ENVIRONMENT, err.to_string(), ""))
    }

    pub fn uid(&self) -> Option<String> {
        Some(self.arguments.uid.clone()).filter(|uid| !uid.is_empty())
    }

    /// What the plugins before have answered.
    pub fn previous(&self) -> Result<&Value, Fault> {
        self.network.prev_result.as_ref().ok_or_else(|| {
            let text = "there is no prevResult: this plugin comes after the one that makes the link";
            Fault::new(Fault::CONFIGURATION, text, "")
        })
    }

    pub fn made(&self) -> Result<Made, Fault> {
        let MadeDocument { interfaces, ips } = MadeDocument::deserialize(self.previous()?)
            .map_err(|err| Fault::new(Fault::DECODE, "prevResult cannot be read", err.to_string()))?;
        let address = |made: &MadeAddress| {
            let text = made.address.split('/').next().unwrap_or_default();
            text.parse().map_err(|_| {
                let text = format!("prevResult has an address that is none: {:?}", made.address);
                Fault::new(Fault::DECODE, text, "")
            })
        };
        let links = interfaces.into_iter().filter(|interface| interface.sandbox.is_empty());
        Ok(Made {
            links: links.map(|interface| interface.name).collect(),
            addresses: ips.iter().map(address).collect::<Result<_, _>>()?,
        })
    }
}

fn verb(text: &str) -> Result<Verb, Fault> {
    Ok(match text {
        "ADD" => Verb::Add,
        "DEL" => Verb::Del,
        "CHECK" => Verb::Check,
        "GC" => Verb::Gc,
        "STATUS" => Verb::Status,
        "VERSION" => Verb::Version,
        other => {
            let text = format!("CNI_COMMAND {other:?} is not known");
            return Err(Fault::new(Fault::ENVIRONMENT, text, ""));
        }
    })
}

impl Arguments {
    /// Pairs, separated by `;`. Others than these are for others.
    fn read(text: &str) -> Self {
        let mut arguments = Self::default();
        for (key, value) in text.split(';').filter_map(|pair| pair.split_once('=')) {
            let place = match key {
                "K8S_POD_NAMESPACE" => &mut arguments.namespace,
                "K8S_POD_NAME" => &mut arguments.name,
                "K8S_POD_UID" => &mut arguments.uid,
                _ => continue,
            };
            value.clone_into(place);
        }
        arguments
    }
}

/// As the specification has it.
fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    text.len() <= 128
        && letters.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(command: &str, container: &str, document: &Value) -> Result<Asked, Fault> {
        Asked::read(document.to_string().as_bytes(), |name| match name {
            "CNI_COMMAND" => command.to_owned(),
            "CNI_CONTAINERID" => container.to_owned(),
            "CNI_IFNAME" => "eth0".to_owned(),
            "CNI_ARGS" => "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u".to_owned(),
            _ => String::new(),
        })
    }

    fn document() -> Value {
        json!({"cniVersion": "1.0.0", "name": "n", "type": "trestle-cni",
               "prevResult": {"interfaces": [{"name": "veth1", "mac": "x"}, {"name": "eth0", "sandbox": "/run/netns/a"}],
                              "ips": [{"address": "10.0.0.7/24", "interface": 1}, {"address": "fd00::7/64"}]}})
    }

    #[test]
    fn an_add_names_the_pod_its_link_and_its_addresses() {
        let asked = asked("ADD", "c1", &document()).unwrap();
        let Made { links, addresses } = asked.made().unwrap();
        assert_eq!(links, ["veth1"]);
        assert_eq!(addresses, ["10.0.0.7".parse::<IpAddr>().unwrap(), "fd00::7".parse().unwrap()]);
        assert_eq!((asked.pod().unwrap().to_string(), asked.uid()), ("shop/web".into(), Some("u".into())));
        let container = Container { id: "c1".into(), interface: "eth0".into(), network: "n".into() };
        assert_eq!(asked.container, container);
    }

    #[test]
    fn what_cannot_be_used_is_told_in_the_words_of_the_specification() {
        let code = |asked: Result<Asked, Fault>| asked.map(|_| ()).map_err(|fault| fault.code);
        assert_eq!(code(asked("MAKE", "c1", &document())), Err(Fault::ENVIRONMENT));
        for container in ["", "../../etc", "a b", "-a", "a/b"] {
            assert_eq!(code(asked("DEL", container, &document())), Err(Fault::ENVIRONMENT), "{container}");
        }
        let mut old = document();
        old["cniVersion"] = json!("0.1.0");
        assert_eq!(code(asked("ADD", "c1", &old)), Err(Fault::VERSION));
        assert_eq!(code(asked("VERSION", "", &old)), Ok(()));
        assert_eq!(code(Asked::read(b"{", |_| "ADD".to_owned())), Err(Fault::DECODE));
        assert_eq!(code(Asked::read(b" \n", |_| "VERSION".to_owned())), Ok(()));
        let mut first = document();
        first["prevResult"] = Value::Null;
        assert_eq!(asked("ADD", "c1", &first).unwrap().made().unwrap_err().code, Fault::CONFIGURATION);
        first["prevResult"] = json!({"ips": [{"address": "here"}]});
        assert_eq!(asked("ADD", "c1", &first).unwrap().made().unwrap_err().code, Fault::DECODE);
        let told = Fault::new(Fault::LATER, "no", "agent").document("1.0.0");
        assert_eq!(told, json!({"cniVersion": "1.0.0", "code": 11, "msg": "no", "details": "agent"}));
        let version = |text: &str| version_of(text.as_bytes());
        assert_eq!((version("{"), version(r#"{"cniVersion":"0.4.0"}"#)), ("1.1.0".into(), "0.4.0".into()));
    }

    #[test]
    fn what_the_runtime_has_still_is_said_in_either_word_or_not_at_all() {
        let list = json!([{"containerID": "c1", "ifname": "eth0"}]);
        let one = Some(BTreeSet::from([Valid { container: "c1".into(), interface: "eth0".into() }]));
        for (keys, expected) in [
            (&["cni.dev/valid-attachments"][..], one.clone()),
            (&["cni.dev/attachments"], one.clone()),
            (&["cni.dev/valid-attachments", "cni.dev/attachments"], one),
            (&[], None),
        ] {
            let mut document = document();
            keys.iter().for_each(|key| document[*key] = list.clone());
            assert_eq!(asked("GC", "", &document).unwrap().valid(), expected, "{keys:?}");
        }
    }
}
