//! The whole server, not its engine: the first `trestle apply` of 25,000 namespaces, 100,000 Pods and 75,000 policies, and a
//! restart with them; and a restart with 500,000 Pods and 100,000 policies.
//!
//! The controller is the real one, in a process of its own that tells what it took; the client is the binary that users have
//! (`target/release/trestle`, or what `TRESTLE` names). Documents are written to a file first, as YAML. A restart ends when the first
//! complete state has been handed to everybody who tells nodes and readers, and callers are served. `TRESTLE_BENCH_SHARE=10` takes a
//! tenth of everything.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use benches::report;
use server::{Config, Controller};

/// Between two looks at a process that is measured from outside.
const LOOK: Duration = Duration::from_millis(20);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve", bench, dir] => serve(bench, Path::new(dir)),
        _ => measure(),
    }
}

fn measure() -> anyhow::Result<()> {
    let share = env::var("TRESTLE_BENCH_SHARE").ok().and_then(|text| text.parse().ok()).unwrap_or(1_usize);
    for (name, namespaces, pods) in [("", 25_000 / share, 4), (".large", 33_334 / share, 15)] {
        let dir = tempfile::tempdir()?;
        let (data, file) = (dir.path().join("data"), dir.path().join("objects.yaml"));
        write_objects(&file, namespaces, pods)?;
        let size = fs::metadata(&file)?.len();
        report(&format!("server.apply{name}"), "file_mib", mib(size), "MiB");
        let serving = Serving::start(&format!("server.apply{name}"), &data)?;
        apply(&format!("server.client{name}"), &serving, &file)?;
        serving.stop()?;
        Serving::start(&format!("server.p1{name}"), &data)?.stop()?;
    }
    Ok(())
}

/// A controller in a process of its own.
struct Serving {
    child: Child,
    /// Its gRPC address, its CA and the token of its administrator.
    connection: Vec<String>,
}

impl Serving {
    fn start(bench: &str, data: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(env::current_exe()?)
            .args(["serve", bench])
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().context("it has one")?;
        let mut out = BufReader::new(out);
        // Figures go through; the line that is none says where it listens.
        loop {
            line.clear();
            if out.read_line(&mut line)? == 0 {
                bail!("the controller ended before it served");
            }
            if !line.starts_with('{') {
                break;
            }
            print_line(&line)?;
        }
        let connection = line.split_whitespace().map(str::to_owned).collect();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = print_line(&format!("{line}\n"));
            }
        });
        Ok(Self { child, connection })
    }

    fn stop(mut self) -> anyhow::Result<()> {
        // The end of its input is its end.
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { bail!("the controller ended with {status}") }
    }
}

fn print_line(line: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().lock().write_all(line.as_bytes())?)
}

/// What a process of this program does that is a controller.
fn serve(bench: &str, data: &Path) -> anyhow::Result<()> {
    let started = Instant::now();
    let is_restart = data.exists();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut config = Config::in_dir(data.to_owned());
        for listen in [&mut config.listen.http, &mut config.listen.grpc, &mut config.listen.watch] {
            *listen = "127.0.0.1:0".parse()?;
        }
        let controller = Controller::start(config).await?;
        while !controller.transport().hub.is_synced() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if is_restart {
            report(bench, "seconds", started.elapsed().as_secs_f64(), "s");
            tell_own(bench)?;
        }
        let (ca, token) = (controller.ca_path(), controller.token_path());
        let line = format!("https://{} {} {}\n", controller.grpc_addr(), ca.display(), token.display());
        print_line(&line)?;
        std::io::stdout().flush()?;
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        if !is_restart {
            tell_own(bench)?;
        }
        controller.stop().await?;
        anyhow::Ok(())
    })
}

/// What this process took so far.
fn tell_own(bench: &str) -> anyhow::Result<()> {
    let taken = Taken::of("self")?;
    report(bench, "cpu_s", taken.cpu_s, "s");
    report(bench, "rss_mib", taken.rss_mib, "MiB");
    report(bench, "peak_rss_mib", taken.peak_mib, "MiB");
    Ok(())
}

fn apply(bench: &str, serving: &Serving, file: &Path) -> anyhow::Result<()> {
    let trestle =
        env::var_os("TRESTLE").map_or_else(|| PathBuf::from("../target/release/trestle"), PathBuf::from);
    let [server, ca, token] = serving.connection.as_slice() else {
        bail!("the controller did not say where it is")
    };
    let started = Instant::now();
    let mut client = Command::new(&trestle)
        .args(["apply", "--server", server, "--ca", ca, "--token-file", token, "-f"])
        .arg(file)
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}; build it, or name it with TRESTLE", trestle.display()))?;
    let mut taken = Taken::default();
    let status = loop {
        if let Ok(now) = Taken::of(&client.id().to_string()) {
            taken = now;
        }
        if let Some(status) = client.try_wait()? {
            break status;
        }
        thread::sleep(LOOK);
    };
    if !status.success() {
        bail!("trestle apply ended with {status}");
    }
    report(bench, "seconds", started.elapsed().as_secs_f64(), "s");
    report(bench, "cpu_s", taken.cpu_s, "s");
    report(bench, "peak_rss_mib", taken.peak_mib, "MiB");
    Ok(())
}

/// What a process took.
#[derive(Clone, Copy, Default)]
struct Taken {
    cpu_s: f64,
    rss_mib: f64,
    peak_mib: f64,
}

impl Taken {
    fn of(process: &str) -> anyhow::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        // After the name, which may hold anything: the fields from the third on.
        let fields: Vec<&str> =
            stat.rsplit_once(')').context("it has a name")?.1.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let of = |name: &str| -> anyhow::Result<f64> {
            let line =
                status.lines().find_map(|line| line.strip_prefix(name)).context("a line is missing")?;
            Ok(line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<f64>()? / 1024.0)
        };
        // Linux has counted in hundredths of a second for users since it was there.
        Ok(Self { cpu_s: ticks / 100.0, rss_mib: of("VmRSS:")?, peak_mib: of("VmHWM:")? })
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The published scenario: in each namespace a policy that closes it, two that open it among the Pods of an app, and the Pods.
fn write_objects(path: &Path, namespaces: usize, pods: usize) -> anyhow::Result<()> {
    let mut out = BufWriter::new(fs::File::create(path)?);
    for n in 0..namespaces {
        write!(
            out,
            "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: ns-{n}\n  labels:\n    app: ns-{n}\n\
             ---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: default-deny-all\n  namespace: ns-{n}\n\
             spec:\n  podSelector: {{}}\n  policyTypes: [Ingress, Egress]\n"
        )?;
        for i in 1..=2 {
            let app = format!("matchLabels:\n          app-{i}: scale-{i}\n");
            write!(
                out,
                "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: np-{i}\n  namespace: ns-{n}\n\
                 spec:\n  podSelector:\n    matchLabels:\n      app-{i}: scale-{i}\n  policyTypes: [Ingress, Egress]\n\
                 \x20 ingress:\n  - from:\n    - podSelector:\n        {app}  egress:\n  - to:\n    - podSelector:\n        {app}"
            )?;
        }
        for p in 0..pods {
            let (i, seed) = (p % 2 + 1, n * pods + p);
            let ip = std::net::Ipv4Addr::from(0x0a00_0000 + u32::try_from(seed)?);
            write!(
                out,
                "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: pod-{p}\n  namespace: ns-{n}\n  labels:\n    app-{i}: scale-{i}\n\
                 spec:\n  nodeName: node-{}\nstatus:\n  podIP: {ip}\n  podIPs:\n  - ip: {ip}\n",
                seed % 1_000
            )?;
        }
    }
    Ok(out.flush()?)
}
