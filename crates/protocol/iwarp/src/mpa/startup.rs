//! How a stream begins: what an initiator asks for, what a responder answers, what both have then (RFC 5044 7.1, RFC 6581).

use crate::config::Config;
use crate::event::{Request, Terms};
use crate::fault::Fault;
use crate::wire::{DEPTH_ANY, Enhanced, Rtr, Startup};

/// What a responder does about a request.
pub(crate) enum Begin {
    /// Its owner decides.
    Ask(Request),
    /// The stream cannot be what it asks for: say so, and close.
    Refuse,
}

/// What an initiator does about a reply.
pub(crate) enum Answer {
    /// The stream is there. Such a message says that the responder may begin.
    Agreed(Terms, Option<Rtr>),
    /// The responder refuses, and says this.
    Rejected(Vec<u8>),
    /// The terms do not fit: a Terminate message says so.
    Unfit(Terms, Fault),
}

/// The request of an initiator.
pub(crate) fn request(config: &Config, private_data: &[u8]) -> Startup {
    let enhanced = (config.revision >= 2).then(|| Enhanced {
        is_peer_to_peer: config.peer_to_peer,
        rtr: if config.peer_to_peer { config.rtr } else { Rtr::default() },
        ird: config.ird,
        ord: config.ord,
    });
    Startup {
        is_reply: false,
        markers: false,
        crc: config.crc,
        is_rejected: false,
        revision: config.revision,
        enhanced,
        private_data: private_data.to_vec(),
    }
}

/// What a request wants of the responder's owner. Markers are not sent, and revisions 0 and above 2 are not spoken.
pub(crate) fn begin(request: &Startup) -> Begin {
    if request.markers || !(1..=2).contains(&request.revision) {
        return Begin::Refuse;
    }
    let depth = |of: fn(&Enhanced) -> u16| request.enhanced.as_ref().map(of).filter(|depth| *depth != DEPTH_ANY);
    Begin::Ask(Request {
        private_data: request.private_data.clone(),
        ird: depth(|enhanced| enhanced.ird),
        ord: depth(|enhanced| enhanced.ord),
        is_peer_to_peer: request.enhanced.is_some_and(|enhanced| enhanced.is_peer_to_peer),
    })
}

/// The reply of a responder, what it has then, and what the initiator's first message may be, if that says only that it may begin.
pub(crate) fn reply(
    config: &Config,
    request: &Startup,
    private_data: &[u8],
    is_rejected: bool,
) -> (Startup, Terms, Option<Rtr>) {
    let mut terms = Terms {
        revision: request.revision.clamp(1, 2),
        crc: config.crc || request.crc,
        is_peer_to_peer: false,
        ird: config.ird,
        ord: config.ord,
        private_data: request.private_data.clone(),
    };
    let mut rtr = None;
    let enhanced = request.enhanced.map(|wanted| {
        terms.ird = lower(config.ird, wanted.ord);
        terms.ord = lower(config.ord, wanted.ird);
        terms.is_peer_to_peer = wanted.is_peer_to_peer;
        let chosen = wanted.rtr.both(config.rtr).first().unwrap_or(config.rtr);
        if wanted.is_peer_to_peer {
            rtr = Some(chosen);
            // One that is a read must be taken, whatever follows.
            terms.ird = terms.ird.max(u16::from(chosen.read));
        }
        let offered = if wanted.is_peer_to_peer { chosen } else { Rtr::default() };
        let (is_peer_to_peer, ird, ord) = (wanted.is_peer_to_peer, terms.ird, terms.ord);
        Enhanced { is_peer_to_peer, rtr: offered, ird, ord }
    });
    let reply = Startup {
        is_reply: true,
        markers: false,
        crc: terms.crc,
        is_rejected,
        revision: terms.revision,
        enhanced,
        private_data: private_data.to_vec(),
    };
    (reply, terms, rtr)
}

/// What an initiator has after a reply.
///
/// # Errors
/// When the reply is none to what was asked for.
pub(crate) fn agree(config: &Config, reply: &Startup) -> Result<Answer, Fault> {
    if reply.is_rejected {
        return Ok(Answer::Rejected(reply.private_data.clone()));
    }
    let is_enhanced = config.revision >= 2;
    if reply.markers || reply.revision != config.revision || reply.enhanced.is_some() != is_enhanced {
        return Err(Fault::Startup);
    }
    let mut terms = Terms {
        revision: reply.revision,
        crc: config.crc || reply.crc,
        is_peer_to_peer: false,
        ird: config.ird,
        ord: config.ord,
        private_data: reply.private_data.clone(),
    };
    let Some(enhanced) = reply.enhanced else { return Ok(Answer::Agreed(terms, None)) };
    terms.ord = lower(config.ord, enhanced.ird);
    terms.is_peer_to_peer = config.peer_to_peer && enhanced.is_peer_to_peer;
    if enhanced.ord != DEPTH_ANY && enhanced.ord > config.ird {
        return Ok(Answer::Unfit(terms, Fault::Ird));
    }
    if !config.peer_to_peer {
        return Ok(Answer::Agreed(terms, None));
    }
    match enhanced.rtr.both(config.rtr).first() {
        Some(rtr) if enhanced.is_peer_to_peer => Ok(Answer::Agreed(terms, Some(rtr))),
        _ => Ok(Answer::Unfit(terms, Fault::Rtr)),
    }
}

/// What an end has of what it wants when its peer has so much, or does not say.
fn lower(wanted: u16, peer: u16) -> u16 {
    if peer == DEPTH_ANY { wanted } else { wanted.min(peer) }
}
