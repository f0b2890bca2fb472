//! Commands of iproute2 and nftables, for paths that run once per object.

use std::process::Stdio;

use cloud_api::CloudError;
use tokio::{io::AsyncWriteExt as _, process::Command};

/// Runs a command and gives back what it printed.
pub(crate) async fn run(words: &[&str]) -> Result<String, CloudError> {
    run_with(words, "").await
}

/// Runs a command with this on its standard input.
pub(crate) async fn run_with(words: &[&str], input: &str) -> Result<String, CloudError> {
    let failed = |why: String| CloudError::unavailable(format!("`{}` failed: {why}", words.join(" ")));
    let (program, arguments) = words.split_first().ok_or_else(|| failed("there is no command".to_owned()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|err| failed(format!("{err}; is {program} installed?")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input says itself what is wrong.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(|err| failed(err.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// The names of all network namespaces that `ip netns` knows.
pub(crate) async fn namespaces() -> Result<Vec<String>, CloudError> {
    let listed = run(&["ip", "netns", "list"]).await?;
    // A line is `name` or `name (id: 0)`.
    Ok(listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// Deletes a namespace with all that is in it; one that is not there is fine.
pub(crate) async fn delete_namespace(name: &str) -> Result<(), CloudError> {
    if namespaces().await?.iter().any(|there| there == name) {
        run(&["ip", "netns", "delete", name]).await?;
    }
    Ok(())
}
