//! An array, assembled by this host for itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use sanwire_attach::Registry;
use sanwire_initiator::ConnectionLook;
use sanwire_remote::store_volume::{StoreNames, StoreVolume};
use sanwire_remote::volume::release_all;
use sanwire_store::StoreSpec;

use super::super::{attachments, device};
use super::{Named, become_io_flusher, check_kind, is_block_device, stay};
use crate::args::AttachOptions;
use crate::connect;
use crate::failure::misuse;

/// The options that mean something: what a member needs is said with the member.
const OPTIONS: [&str; 8] = ["as", "mount-point", "no-device", "socket", "listen", "metrics", "read-only", "wait"];

/// How long the end waits until the array is closed, and its members are released.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Assembles it, attaches it, and stays until it is detached or a signal comes.
pub(super) fn attach(text: &str, args: &AttachOptions, preempt: bool) -> anyhow::Result<()> {
    check(args, preempt)?;
    let spec: StoreSpec = text.parse().map_err(|error| misuse(format!("{text}: {error}")))?;
    let shown = text.split(',').next().unwrap_or(text).to_owned();
    let name = shown.trim_start_matches("array:").to_owned();
    if is_block_device(args) {
        become_io_flusher();
    }
    let registry = Registry::open(device::helper)?;
    // What an attachment that was killed has left would be in the way.
    registry.clean()?;
    // Until it is detached.
    let _claim = registry.claim(&shown, &shown, false)?;
    let result = assembled(&spec, &Named { place: shown.replace([':', '/'], "_"), shown }, &name, args, &registry);
    release_all(LEAVE_TIMEOUT);
    result
}

fn assembled(
    spec: &StoreSpec,
    named: &Named,
    name: &str,
    args: &AttachOptions,
    registry: &Registry,
) -> anyhow::Result<()> {
    let names = StoreNames { name: name.to_owned(), server: "array".to_owned(), identity: named.shown.clone() };
    let patience = connect::patience(&args.client.reach);
    let attended = StoreVolume::start(spec.open()?, names, patience).context("cannot start threads for the array")?;
    let outages = attended.outages();
    // Since when it is gone, for `sanwire status`.
    let (seen, gone_at) = (Arc::clone(&outages), Mutex::new(None));
    let look = move || {
        let gone_at = &mut *gone_at.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.is_gone() {
            *gone_at = None;
        } else if gone_at.is_none() {
            *gone_at = Some(Instant::now());
        }
        let away_for = gone_at.map(|at: Instant| at.elapsed());
        Some(ConnectionLook { links: Vec::new(), away_for, is_failing: false })
    };
    let result = stay(named, args, attended.volume(), registry, (look, outages));
    attended.leave(LEAVE_TIMEOUT);
    result
}

/// Who gives an option relies on what it says.
fn check(args: &AttachOptions, preempt: bool) -> anyhow::Result<()> {
    let given = attachments::given();
    if let Some((option, _)) = given.iter().find(|(option, _)| !OPTIONS.contains(&option.as_str())) {
        return Err(misuse(format!(
            "--{option} is not for arrays: leave it out, or give what one of its members needs with that, like member=URL\\,password-file=FILE"
        )));
    }
    if preempt {
        return Err(misuse("--preempt is not for arrays: give takeover with each member, like member=URL\\,takeover"));
    }
    check_kind(args)
}
