//! An array, assembled by this host for itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use sanwire_attach::Registry;
use sanwire_initiator::ConnectionLook;

use super::super::assembled::ArrayVolume;
use super::super::{attachments, device};
use super::{Named, become_io_flusher, check_kind, is_block_device, stay};
use crate::args::{ArrayPlace, AttachOptions};
use crate::control::ControlSocket;
use crate::failure::misuse;

/// Assembles it, attaches it, and stays until it is detached or a signal comes.
pub(super) fn attach(place: &ArrayPlace, args: &AttachOptions, preempt: bool) -> anyhow::Result<()> {
    if preempt {
        return Err(misuse("--preempt is not for arrays: give takeover with each member, like member=URL\\,takeover"));
    }
    check_kind(args)?;
    let shown = place.to_string();
    if is_block_device(args) {
        become_io_flusher();
    }
    let registry = Registry::open(device::helper)?;
    // What an attachment that was killed has left would be in the way.
    registry.clean()?;
    // Until it is detached.
    let claim = registry.claim(&shown, &shown, false)?;
    let array = ArrayVolume::assemble(place, &args.client.reach, Some(claim))?;
    let outages = array.outages()?;
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
    let control = open_control(&registry, &array);
    let socket = control.as_ref().map(|control| control.path().to_owned());
    let named = Named { place: shown.replace([':', '/'], "_"), shown, control: socket };
    stay(&named, args, array.volume()?, &registry, (look, outages))
}

/// Answers for what is to be done with the copies of the array. It is attached also where nobody can ask for that.
fn open_control(registry: &Registry, array: &ArrayVolume) -> Option<ControlSocket> {
    let desk = array.desk()?.clone();
    let opened = ControlSocket::open(&registry.control_place(), move |by, line| desk.handle_json(by, line));
    opened
        .inspect_err(|error| tracing::warn!("`sanwire array` will not reach the array while it is attached: {error:#}"))
        .ok()
}

/// The options of the command line: who gives one relies on what it says. Those of an entry were looked at when it was read.
pub(in super::super) fn check_given() -> anyhow::Result<()> {
    let refused = attachments::given().into_iter().find_map(|(option, _)| AttachOptions::refusal_for_array(&option));
    refused.map_or(Ok(()), |message| Err(misuse(message)))
}
