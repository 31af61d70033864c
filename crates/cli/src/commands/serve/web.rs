//! The HTTP API of a server that is served.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_server::ManagementHandle;
use sanwire_web::{Web, WebConfig};

/// What the configuration has said of it when it was read last.
#[derive(Clone)]
pub(super) struct WebNow(Arc<Mutex<WebConfig>>);

impl WebNow {
    pub(super) fn new(config: WebConfig) -> Self {
        WebNow(Arc::new(Mutex::new(config)))
    }

    /// Opens it. It ends before the server does.
    pub(super) fn open(&self, desk: &ManagementHandle) -> anyhow::Result<Option<Web>> {
        let config = self.lock().clone();
        if config.addresses.is_empty() {
            return Ok(None);
        }
        let web = Web::start(&config, Arc::new(desk.clone()))?;
        desk.make_web_links_by(web.links());
        desk.add_metrics(web.metrics());
        let (renew, now) = (web.renewal(), self.clone());
        desk.follow_reloads_by(move || {
            let config = now.lock().clone();
            renew(&config)
        });
        Ok(Some(web))
    }

    /// The configuration was read again. It does not hold when its certificate cannot be used.
    pub(super) fn read_again(&self, config: &WebConfig) -> anyhow::Result<()> {
        config.look_at_certificate()?;
        self.lock().clone_from(config);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, WebConfig> {
        // It is whole between any two changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where it is reached, a line for each place; and how to begin where nobody has an account.
pub(super) fn places(web: Option<&Web>) -> anyhow::Result<String> {
    let Some(web) = web else { return Ok(String::new()) };
    let mut text: String = web.urls().iter().map(|url| format!("HTTP API at {url}\n")).collect();
    if let Some(fingerprint) = web.fingerprint() {
        let _ = writeln!(text, "its certificate has the SHA-256 {fingerprint}");
    }
    if let Some(link) = web.log_in_link()? {
        let _ = writeln!(text, "its first administrator begins within ten minutes (docs/http-api.md) at {link}");
    }
    Ok(text)
}
