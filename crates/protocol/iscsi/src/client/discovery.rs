//! Text exchanges in full feature phase: which targets there are (RFC 7143 11.10, 11.11, appendix C).

use sanwire_buffer::Slice;

use super::link::{Link, Request};
use super::types::DiscoveredTarget;
use super::{Client, ClientEvent, Stage, State, Trouble};
use crate::other_portals::{ASKS, OtherPortal, TELLS, of_address};
use crate::wire::{TAG_NONE, TextRequest, TextResponse};

/// Targets of a discovery session, and addresses of each, at the most.
const TARGETS_MAX: usize = 4096;
const ADDRESSES_MAX: usize = 256;

/// Bytes and PDUs of an answer, at the most.
const TEXT_MAX_BYTES: usize = 4 << 20;
const ROUNDS_MAX: u32 = 8192;

/// A text exchange under way.
#[derive(Default)]
pub(super) struct Exchange {
    /// It asks for targets; else the target wanted to negotiate.
    is_discovery: bool,
    text: Vec<u8>,
    rounds: u32,
}

impl Exchange {
    pub(super) fn is_discovery(&self) -> bool {
        self.is_discovery
    }
}

impl Client {
    /// Asks for targets, if that is wanted and nothing else is being asked.
    pub(super) fn send_text(&mut self) {
        let State::Live(session) = &mut self.state else { return };
        if !self.wants_targets || session.text.is_some() {
            return;
        }
        let Some(link) = self.connections.iter_mut().find_map(|known| match &mut known.stage {
            Stage::Full(link) if link.may_ask() => Some(link),
            _ => None,
        }) else {
            return;
        };
        self.wants_targets = false;
        // Linux' target looks at what comes first, and at nothing behind it.
        let text = if self.config.target.is_none() {
            format!("SendTargets=All\0{ASKS}=Yes\0")
        } else {
            "SendTargets=\0".into()
        };
        session.text = Some(Exchange { is_discovery: true, ..Exchange::default() });
        let request = TextRequest {
            is_immediate: true,
            is_final: true,
            task_tag: session.next_tag(),
            transfer_tag: TAG_NONE,
            command_number: session.command_number().0,
            expected_status_number: link.expected_status().0,
            ..TextRequest::default()
        };
        link.request(request.task_tag, Request::Text, request.write(), Some(Slice::from(text.into_bytes())));
    }

    /// The target wants to negotiate: it may speak after our empty request (RFC 7143 11.9.1).
    pub(super) fn negotiate(&mut self, link: &mut Link) {
        let State::Live(session) = &mut self.state else { return };
        if session.text.is_some() || !link.may_ask() {
            return;
        }
        session.text = Some(Exchange::default());
        let request = TextRequest {
            is_immediate: true,
            is_final: true,
            task_tag: session.next_tag(),
            transfer_tag: TAG_NONE,
            command_number: session.command_number().0,
            expected_status_number: link.expected_status().0,
            ..TextRequest::default()
        };
        link.request(request.task_tag, Request::Text, request.write(), None);
    }

    /// An answer, or a part of it: then the rest is asked for.
    pub(super) fn handle_text(&mut self, link: &mut Link, response: &TextResponse, data: &[u8]) -> Result<(), Trouble> {
        let State::Live(session) = &mut self.state else { return Ok(()) };
        let (Some(Request::Text), Some(exchange)) = (link.take_request(response.task_tag), &mut session.text) else {
            return Err(Trouble::violation("it answered a text request that was not sent"));
        };
        exchange.rounds += 1;
        if exchange.text.len() + data.len() > TEXT_MAX_BYTES || exchange.rounds > ROUNDS_MAX {
            return Err(Trouble::violation("its text has no end"));
        }
        exchange.text.extend_from_slice(data);
        if response.transfer_tag != TAG_NONE && !(response.is_final && exchange.is_discovery) {
            let answer = if exchange.is_discovery || response.continues {
                Vec::new()
            } else {
                negotiated(&std::mem::take(&mut exchange.text), link)
            };
            let request = TextRequest {
                is_immediate: true,
                is_final: true,
                lun: response.lun,
                task_tag: response.task_tag,
                transfer_tag: response.transfer_tag,
                command_number: session.command_number().0,
                expected_status_number: link.expected_status().0,
                ..TextRequest::default()
            };
            link.request(request.task_tag, Request::Text, request.write(), Some(Slice::from(answer)));
            return Ok(());
        }
        let Some(exchange) = session.text.take() else { return Ok(()) };
        if exchange.is_discovery {
            self.events.push_back(ClientEvent::Targets(targets(&exchange.text)?));
            session.is_settled = true;
        } else {
            negotiated(&exchange.text, link);
        }
        Ok(())
    }
}

/// The pairs of a text: each ends in a zero.
fn pairs(text: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    let texts = text.split(|&byte| byte == 0).filter_map(|pair| std::str::from_utf8(pair).ok());
    texts.filter_map(|pair| pair.split_once('='))
}

/// Answers what the target wants to negotiate: how much it takes at a time may change, nothing else.
fn negotiated(text: &[u8], link: &mut Link) -> Vec<u8> {
    let mut answer = Vec::new();
    for (key, value) in pairs(text).take(64) {
        match value.parse() {
            Ok(bytes @ 512..=0xff_ffff) if key == "MaxRecvDataSegmentLength" => {
                link.parameters.send_data_max_bytes = bytes;
            }
            _ => answer.extend(format!("{key}=Reject\0").into_bytes()),
        }
    }
    answer.truncate(512);
    answer
}

/// What SendTargets brought. A name that is none, and what belongs to it, is left out.
fn targets(text: &[u8]) -> Result<Vec<DiscoveredTarget>, Trouble> {
    let mut found: Vec<DiscoveredTarget> = Vec::new();
    let (mut is_known, mut tells_others) = (false, false);
    for (key, value) in pairs(text) {
        match key {
            "TargetName" => {
                let name = value.parse();
                is_known = name.is_ok();
                if found.len() >= TARGETS_MAX {
                    return Err(Trouble::violation(format!("it told of more than {TARGETS_MAX} targets")));
                }
                found.extend(name.map(|name| DiscoveredTarget { name, addresses: Vec::new(), others: None }));
            }
            "TargetAddress" if is_known => {
                let Some(target) = found.last_mut().filter(|target| target.addresses.len() < ADDRESSES_MAX) else {
                    continue;
                };
                let (address, tag) = of_address(value);
                target.addresses.push((address.to_owned(), tag));
            }
            TELLS if is_known => {
                let others = found.last_mut().map(|target| target.others.get_or_insert_default());
                let room = others.filter(|others| others.len() < ADDRESSES_MAX);
                room.into_iter().for_each(|others| others.extend(OtherPortal::read(value)));
            }
            ASKS => tells_others |= value == "Yes",
            _ => {}
        }
    }
    for target in &mut found {
        target.others = tells_others.then(|| target.others.take().unwrap_or_default());
    }
    Ok(found)
}
