//! What the benches share: how a figure is told.

#![expect(clippy::print_stdout, reason = "figures go to standard output")]

/// Figures are those of the binary, so what allocates is the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Prints one figure as one line of JSON.
pub fn report(bench: &str, metric: &str, value: f64, unit: &str) {
    let value = (value * 1000.0).round() / 1000.0;
    println!("{}", serde_json::json!({ "bench": bench, "metric": metric, "value": value, "unit": unit }));
}
