//! What a server costs that has many sessions and nothing to do, and what they cost.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::link::{End, Link};
use crate::process::{Host, Running};
use crate::run::Settings;
use crate::servers::{Files, check_interrupted, wait_for};

/// Sessions that are logged in.
const SESSIONS: usize = 100;

/// Processor time, in percent of one processor.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Idle {
    pub(crate) server_percent: f64,
    /// Of the program that holds all sessions.
    pub(crate) clients_percent: f64,
    /// What that is.
    pub(crate) command: String,
}

/// A server with a hundred sessions, by this URL, left alone.
///
/// # Errors
/// When it or one of the sessions does not come up.
pub(crate) fn measure_idle(
    settings: &Settings,
    files: &Files,
    url: &str,
    start_server: impl FnOnce(&Host, &str, &Files) -> Result<Running>,
) -> Result<Idle> {
    check_interrupted(&settings.interrupted)?;
    let time = Duration::from_secs(if settings.args.quick { 5 } else { 20 });
    eprintln!("idle server with {SESSIONS} sessions by {url}: {} s", time.as_secs());
    let link = Link::loopback()?;
    let host = Host { link: &link, processors: None };
    let [sanwire, _, this] = &settings.programs;
    let server = start_server(&host, sanwire, files)?;
    let count = SESSIONS.to_string();
    let arguments = ["sessions", url, &count];
    let holder = host.start(End::Client, this, &arguments)?;
    wait_for("the last session", || {
        let control = files.path("control");
        let status = host.run(End::Server, sanwire, &["ctl", "--socket", &control, "--json", "sessions"])?.output;
        let status: Value = serde_json::from_str(&status)?;
        let here = status["sessions"].as_array().map_or(0, Vec::len);
        ensure!(here >= SESSIONS, "{here} of {SESSIONS} sessions are there");
        Ok(())
    })?;
    let (before, start) = ([server.cpu()?, holder.cpu()?], Instant::now());
    thread::sleep(time);
    let (after, elapsed) = ([server.cpu()?, holder.cpu()?], start.elapsed());
    let percent = |end: usize| after[end].saturating_sub(before[end]).as_secs_f64() / elapsed.as_secs_f64() * 100.0;
    let command = format!("{this} {}", arguments.join(" "));
    Ok(Idle { server_percent: percent(0), clients_percent: percent(1), command })
}

impl Idle {
    /// For the results file.
    pub(crate) fn to_json(&self) -> Value {
        let Idle { server_percent, clients_percent, command } = self;
        json!({
            "sessions": SESSIONS, "server_percent": server_percent, "clients_percent": clients_percent,
            "command": command,
        })
    }
}
