//! What a server costs that has many sessions and nothing to do.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::link::{End, Link};
use crate::process::Host;
use crate::run::Settings;
use crate::servers::{Files, check_interrupted, wait_for};

use super::servers::{Contender, Store, start_sanwire, url};

/// Sessions that are logged in.
const SESSIONS: usize = 100;

/// The server's processor time, in percent of one processor.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Idle {
    pub(crate) server_percent: f64,
    /// What holds the sessions.
    pub(crate) command: String,
}

/// A server with a hundred sessions, left alone.
///
/// # Errors
/// When it or one of the sessions does not come up.
pub(crate) fn measure_idle(settings: &Settings, files: &Files) -> Result<Idle> {
    check_interrupted(&settings.interrupted)?;
    let time = Duration::from_secs(if settings.args.quick { 5 } else { 20 });
    eprintln!("idle iSCSI server with {SESSIONS} sessions: {} s", time.as_secs());
    let link = Link::loopback()?;
    let host = Host { link: &link, processors: None };
    let [sanwire, _, this] = &settings.programs;
    let server = start_sanwire(&host, sanwire, files)?;
    let (url, count) = (url(Contender::Sanwire, Store::Ram), SESSIONS.to_string());
    let arguments = ["sessions", &url, &count];
    let _holder = host.start(End::Client, this, &arguments)?;
    wait_for("the last session", || {
        let control = files.path("control");
        let status = host.run(End::Server, sanwire, &["ctl", "--socket", &control, "--json", "sessions"])?.output;
        let status: Value = serde_json::from_str(&status)?;
        let here = status["sessions"].as_array().map_or(0, Vec::len);
        ensure!(here >= SESSIONS, "{here} of {SESSIONS} sessions are there");
        Ok(())
    })?;
    let (before, start) = (server.cpu()?, Instant::now());
    thread::sleep(time);
    let used = server.cpu()?.saturating_sub(before);
    let server_percent = used.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
    Ok(Idle { server_percent, command: format!("{this} {}", arguments.join(" ")) })
}

impl Idle {
    /// For the results file.
    pub(crate) fn to_json(&self) -> Value {
        let Idle { server_percent, command } = self;
        json!({ "sessions": SESSIONS, "server_percent": server_percent, "command": command })
    }
}
