//! Commands to a cluster, whichever way it is reached.

use std::{path::PathBuf, process::Command, sync::Arc};

use serde_json::{Value, json};

/// Which cluster, and as whom.
#[derive(Clone, Debug)]
pub struct Target {
    /// `ceph.conf`.
    pub conf: PathBuf,
    /// A user that may manage pools and users, such as `client.admin`.
    pub user: String,
    pub keyring: PathBuf,
}

/// Why there is no way to the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "neither librados.so.2 nor the ceph command is installed; install Ceph's client packages (ceph-common)"
    )]
    NotInstalled,
    #[error("librados could not {attempt} for {conf}: {reason}; are the monitors up and is the keyring right?", conf = conf.display())]
    Librados { attempt: &'static str, conf: PathBuf, reason: String },
}

/// A command the cluster refused, or could not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ceph {command}: {message}")]
pub struct CommandError {
    pub command: String,
    /// The cluster's error number, above zero; 0 when it could not be asked.
    pub errno: i32,
    pub message: String,
}

pub(crate) const ENOENT: i32 = 2;
pub(crate) const EPERM: i32 = 1;
pub(crate) const EINVAL: i32 = 22;

/// A way to a cluster's monitors. Calls block.
pub trait Commands: Send + Sync + 'static {
    /// Runs a command on the monitors' quorum.
    fn run(&self, command: &Value) -> Result<Value, CommandError>;
    /// Runs a command on one monitor.
    fn tell(&self, monitor: &str, command: &Value) -> Result<Value, CommandError>;
}

/// Connects through the `ceph` command, librados or not.
pub fn connect_by_command(target: &Target) -> Result<Arc<dyn Commands>, ConnectError> {
    Ok(Arc::new(CephCommand::find(target)?))
}

/// The words of a command, for messages: no keys are in them.
pub(crate) fn words(command: &Value) -> String {
    command["prefix"].as_str().unwrap_or("command").to_owned()
}

/// An answer, which is JSON or nothing worth reading.
pub(crate) fn answer(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or(Value::Null)
}

/// The `ceph` command: a Python program, half a second for each call.
pub(crate) struct CephCommand {
    target: Target,
}

impl CephCommand {
    pub(crate) fn find(target: &Target) -> Result<Self, ConnectError> {
        let found =
            Command::new("ceph").arg("--version").output().is_ok_and(|output| output.status.success());
        if found { Ok(Self { target: target.clone() }) } else { Err(ConnectError::NotInstalled) }
    }

    fn call(&self, command: &Value, tell: Option<&str>) -> Result<Value, CommandError> {
        let failed = |errno, message: String| CommandError { command: words(command), errno, message };
        let mut process = Command::new("ceph");
        process
            .arg("-c")
            .arg(&self.target.conf)
            .args(["-n", &self.target.user])
            .arg("-k")
            .arg(&self.target.keyring);
        process.args(["--connect-timeout", "10", "--format", "json"]);
        if let Some(monitor) = tell {
            process.args(["tell", &format!("mon.{monitor}")]);
        }
        process.args(arguments(command).map_err(|message| failed(EINVAL, message))?);
        let output = process.output().map_err(|error| failed(0, error.to_string()))?;
        if output.status.success() {
            return Ok(answer(&output.stdout));
        }
        // It exits with the error number, and explains itself on standard error.
        let said = String::from_utf8_lossy(&output.stderr);
        let told = said.lines().rev().find(|line| line.starts_with("Error")).unwrap_or(said.trim());
        let message = told.chars().take(500).collect();
        Err(failed(output.status.code().unwrap_or(0), message))
    }
}

impl Commands for CephCommand {
    fn run(&self, command: &Value) -> Result<Value, CommandError> {
        self.call(command, None)
    }

    fn tell(&self, monitor: &str, command: &Value) -> Result<Value, CommandError> {
        self.call(command, Some(monitor))
    }
}

/// A command's JSON as arguments, in the order the command line wants them: by name, not by place.
fn arguments(command: &Value) -> Result<Vec<String>, String> {
    let fields = command.as_object().ok_or("a command is a JSON object")?;
    let mut arguments: Vec<String> = words(command).split(' ').map(str::to_owned).collect();
    let positional = [
        "pool",
        "pool2",
        "srcpool",
        "destpool",
        "entity",
        "app",
        "field",
        "var",
        "val",
        "blocklistop",
        "addr",
        "expire",
        "pg_num",
        "pgp_num",
        "pool_type",
    ];
    for name in positional {
        match fields.get(name) {
            Some(Value::String(text)) => arguments.push(text.clone()),
            Some(Value::Number(number)) => arguments.push(number.to_string()),
            Some(_) | None => {}
        }
    }
    for cap in fields.get("caps").and_then(Value::as_array).into_iter().flatten() {
        arguments.push(cap.as_str().ok_or("capabilities are text")?.to_owned());
    }
    for (name, value) in fields {
        match value {
            Value::Bool(true) => arguments.push(format!("--{}", name.replace('_', "-"))),
            Value::Number(number) if name == "size" => {
                arguments.extend(["--size".to_owned(), number.to_string()])
            }
            _ => {}
        }
    }
    Ok(arguments)
}

/// A command for the monitors, answered in JSON.
pub(crate) fn command<const N: usize>(prefix: &str, fields: [(&str, Value); N]) -> Value {
    let mut command = json!({ "prefix": prefix, "format": "json" });
    for (name, value) in fields {
        command[name] = value;
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_become_the_arguments_a_person_would_type() {
        let typed = |command: Value| arguments(&command).unwrap().join(" ");
        let create = command(
            "osd pool create",
            [
                ("pool", json!("p")),
                ("pg_num", json!(8)),
                ("pgp_num", json!(8)),
                ("pool_type", json!("replicated")),
                ("size", json!(3)),
            ],
        );
        assert_eq!(typed(create), "osd pool create p 8 8 replicated --size 3");
        let quota = command(
            "osd pool set-quota",
            [("pool", json!("p")), ("field", json!("max_bytes")), ("val", json!("9"))],
        );
        assert_eq!(typed(quota), "osd pool set-quota p max_bytes 9");
        let delete = command(
            "osd pool delete",
            [("pool", json!("p")), ("pool2", json!("p")), ("yes_i_really_really_mean_it", json!(true))],
        );
        assert_eq!(typed(delete), "osd pool delete p p --yes-i-really-really-mean-it");
        let user = command(
            "auth get-or-create",
            [("entity", json!("client.x")), ("caps", json!(["mon", "profile rbd"]))],
        );
        assert_eq!(typed(user), "auth get-or-create client.x mon profile rbd");
        let block = command(
            "osd blocklist",
            [("blocklistop", json!("add")), ("addr", json!("1.2.3.4:0/5")), ("expire", json!(60))],
        );
        assert_eq!(typed(block), "osd blocklist add 1.2.3.4:0/5 60");
    }

    #[test]
    fn without_ceph_the_error_says_what_to_install() {
        assert!(ConnectError::NotInstalled.to_string().contains("ceph-common"));
    }
}
