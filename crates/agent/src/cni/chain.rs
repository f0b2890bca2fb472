//! Where a node's network configuration names the plugin: as the last of the plugins that a runtime calls for each Pod.
//!
//! In: the directory with network configurations, of which runtimes take the first by name. Out: the same with the plugin in it, or
//! without. What else is in a configuration stays as it is, and so do the others in the directory. Whoever makes the network may write its
//! configuration anew at any time, so an agent looks again and again ([`keep`]).

use std::{
    convert::Infallible,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tracing::{info, warn};

use super::PROGRAM;

const LOOK: Duration = Duration::from_secs(5);

/// Why the plugin is not in a node's configuration.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    #[error("cannot read the network configurations in {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("there is no network configuration in {} yet: whoever makes this cluster's network writes it", .0.display())]
    None(PathBuf),
    #[error("{} is no list of plugins (a .conflist), so none can follow what it names", .0.display())]
    Single(PathBuf),
    #[error("{} cannot be read as a network configuration", path.display())]
    Malformed {
        path: PathBuf,
        #[source]
        err: serde_json::Error,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
}

/// The plugin as a configuration names it, for an agent with this socket.
pub fn plugin(socket: &Path) -> Value {
    json!({ "type": PROGRAM, "socket": socket })
}

/// Puts the plugin into the configuration that runtimes take. The file that was changed; none if all is as it should be.
pub fn put(dir: &Path, plugin: &Value) -> Result<Option<PathBuf>, ChainError> {
    let path = configurations(dir)?.into_iter().next().ok_or_else(|| ChainError::None(dir.to_owned()))?;
    change(&path, |plugins| with(plugins, plugin)).map(|changed| changed.then_some(path))
}

/// Takes the plugin out of all configurations; the files that were changed.
pub fn take_out(dir: &Path) -> Result<Vec<PathBuf>, ChainError> {
    let mut changed = Vec::new();
    for path in configurations(dir)? {
        match change(&path, without) {
            Ok(true) => changed.push(path),
            // Those are not ours.
            Ok(false) | Err(ChainError::Single(_) | ChainError::Malformed { .. }) => {}
            Err(err) => return Err(err),
        }
    }
    Ok(changed)
}

/// Keeps the plugin in the configuration, for ever.
pub async fn keep(dir: PathBuf, plugin: Value) -> Infallible {
    let mut told = String::new();
    loop {
        let (at, wanted) = (dir.clone(), plugin.clone());
        let put = tokio::task::spawn_blocking(move || put(&at, &wanted)).await;
        match put {
            Ok(Ok(changed)) => {
                told.clear();
                if let Some(path) = changed {
                    info!(path = %path.display(), "the plugin was put into the node's network configuration");
                }
            }
            Ok(Err(err)) => {
                let text = common::chain(&err);
                if told != text {
                    warn!(error = text, "Pods are not attached by CNI yet");
                    told = text;
                }
            }
            Err(err) => warn!(error = %err, "the network configuration could not be looked at"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// In the order in which runtimes look for one.
fn configurations(dir: &Path) -> Result<Vec<PathBuf>, ChainError> {
    let read = || {
        let mut paths = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let is_one = path
                .extension()
                .is_some_and(|end| ["conflist", "conf", "json"].iter().any(|one| end == *one));
            if is_one && path.is_file() {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    };
    read().map_err(|err| ChainError::Read { path: dir.to_owned(), err })
}

/// Changes a configuration's plugins; whether there was something to change.
fn change(path: &Path, act: impl FnOnce(&[Value]) -> Vec<Value>) -> Result<bool, ChainError> {
    let at = |err| ChainError::Read { path: path.to_owned(), err };
    let (text, rights) = (fs::read(path).map_err(at)?, fs::metadata(path).map_err(at)?.permissions());
    let mut document: Value =
        serde_json::from_slice(&text).map_err(|err| ChainError::Malformed { path: path.to_owned(), err })?;
    let Some(plugins) = document.get_mut("plugins").and_then(Value::as_array_mut) else {
        return Err(ChainError::Single(path.to_owned()));
    };
    let wanted = act(plugins);
    if *plugins == wanted {
        return Ok(false);
    }
    *plugins = wanted;
    let replaced = files::replace(path, |file| {
        file.set_permissions(rights)?;
        writeln!(file, "{document:#}")
    });
    replaced.map(|_| true).map_err(|err| ChainError::Write { path: path.to_owned(), err })
}

fn is_ours(plugin: &Value) -> bool {
    plugin.get("type").and_then(Value::as_str) == Some(PROGRAM)
}

fn without(plugins: &[Value]) -> Vec<Value> {
    plugins.iter().filter(|plugin| !is_ours(plugin)).cloned().collect()
}

/// Keys that others have added to it stay.
fn with(plugins: &[Value], plugin: &Value) -> Vec<Value> {
    let mut ours = plugins.iter().rfind(|plugin| is_ours(plugin)).cloned().unwrap_or_else(|| json!({}));
    for (key, value) in plugin.as_object().into_iter().flatten() {
        ours[key] = value.clone();
    }
    let mut all = without(plugins);
    all.push(ours);
    all
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const PTP: &str = r#"{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "ptp", "mtu": 1450}, {"type": "portmap"}]}"#;

    fn types(path: &Path) -> Vec<String> {
        let document: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let plugins = document["plugins"].as_array().unwrap().iter();
        plugins.map(|plugin| plugin["type"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_first_configuration_gets_it_as_its_last_plugin_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = plugin(Path::new("/run/trestle/agent.sock"));
        assert!(matches!(put(dir.path(), &wanted), Err(ChainError::None(_))));
        let (first, second) = (dir.path().join("05-net.conflist"), dir.path().join("10-other.conflist"));
        fs::write(&second, PTP).unwrap();
        fs::write(&first, PTP).unwrap();
        fs::set_permissions(&first, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(dir.path().join("00-readme.txt"), "no configuration").unwrap();
        assert_eq!(put(dir.path(), &wanted).unwrap(), Some(first.clone()));
        assert_eq!(types(&first), ["ptp", "portmap", PROGRAM]);
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_to_string(&second).unwrap(), PTP);
        assert_eq!(put(dir.path(), &wanted).unwrap(), None, "again");

        // The network's own pods write it anew, with something after us.
        let mut document: Value = serde_json::from_slice(&fs::read(&first).unwrap()).unwrap();
        document["plugins"][2]["waitSeconds"] = json!(9);
        document["plugins"].as_array_mut().unwrap().push(json!({"type": "bandwidth"}));
        fs::write(&first, document.to_string()).unwrap();
        assert_eq!(put(dir.path(), &wanted).unwrap(), Some(first.clone()));
        assert_eq!(types(&first), ["ptp", "portmap", "bandwidth", PROGRAM]);
        assert!(fs::read_to_string(&first).unwrap().contains("waitSeconds"), "what was added to it stays");

        assert_eq!(take_out(dir.path()).unwrap(), std::slice::from_ref(&first));
        assert_eq!(types(&first), ["ptp", "portmap", "bandwidth"]);
        assert!(take_out(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_list_is_left_as_it_is_and_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("10-net.conf");
        for (text, single) in [(r#"{"cniVersion": "1.0.0", "name": "n", "type": "ptp"}"#, true), ("{", false)]
        {
            fs::write(&path, text).unwrap();
            let refused = put(dir.path(), &plugin(Path::new("/s"))).unwrap_err();
            assert_eq!(matches!(refused, ChainError::Single(_)), single, "{refused}");
            assert!(take_out(dir.path()).unwrap().is_empty());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert!(matches!(put(Path::new("/nowhere/here"), &json!({})), Err(ChainError::Read { .. })));
    }
}
