//! Commands of iproute2, for paths that run once per object.

use std::process::Stdio;

use cloud_api::{CloudError, Result};
use tokio::{io::AsyncWriteExt as _, process::Command};

/// Runs a command and gives back what it printed.
pub async fn run(words: &[&str]) -> Result<String> {
    run_with(words, "").await
}

/// Runs a command with this on its standard input.
pub(crate) async fn run_with(words: &[&str], input: &str) -> Result<String> {
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
    let mut why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if !input.is_empty() {
        why = format!("{why}; the input was:\n{input}");
    }
    Err(failed(why))
}

/// Runs several `ip` commands in a namespace, in one process.
pub async fn ip_in(namespace: &str, lines: &[String]) -> Result {
    let text = lines.join("\n") + "\n";
    run_with(&["ip", "-n", namespace, "-batch", "-"], &text).await.map(drop)
}

/// Deletes an interface, with its other end and its routes. One that is not there, or is just going with its other
/// end's namespace, is fine.
pub(crate) async fn delete_link(namespace: &str, link: &str) -> Result {
    match run(&["ip", "-n", namespace, "link", "delete", "dev", link]).await {
        Err(err) if crate::namespace::has_link(namespace, link).await => Err(err),
        _ => Ok(()),
    }
}

/// Makes a pair of interfaces, each in its namespace, unless both are there. One whose other end is missing is made
/// anew.
pub async fn veth(a: (&str, &str), b: (&str, &str)) -> Result {
    let (here, there) =
        (crate::namespace::has_link(a.0, a.1).await, crate::namespace::has_link(b.0, b.1).await);
    if here && there {
        return Ok(());
    }
    for (namespace, link, is_there) in [(a.0, a.1, here), (b.0, b.1, there)] {
        if is_there {
            delete_link(namespace, link).await?;
        }
    }
    run(&["ip", "link", "add", a.1, "netns", a.0, "type", "veth", "peer", "name", b.1, "netns", b.0])
        .await
        .map(drop)
}
