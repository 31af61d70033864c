//! Text exchanges in the full feature phase: which targets there are, and what may still be agreed on (RFC 7143 11.10).

use std::collections::BTreeMap;

use super::input::TEXT_MAX_BYTES;
use super::session::{Rejection, Session};
use super::shared::Shared;
use crate::login::SessionKind;
use crate::negotiation::receive_in_full_feature;
use crate::other_portals::{ASKS, TELLS, others};
use crate::receiver::Pdu;
use crate::wire::{TAG_NONE, TextRequest, TextResponse};

/// A text exchange under way.
#[derive(Debug)]
pub(super) struct Exchange {
    task_tag: u32,
    /// What the next request has to bring back.
    transfer_tag: u32,
    /// What was asked so far: [`TEXT_MAX_BYTES`] at the most.
    request: Vec<u8>,
    /// What is still to be answered.
    answer: Vec<u8>,
}

impl Session {
    pub(super) fn handle_text(&mut self, at: usize, pdu: Pdu, shared: &mut Shared) {
        let request = TextRequest::read(&pdu.header);
        if !request.is_immediate {
            self.order.release();
        }
        let begun = self.connections[at].exchange.take();
        let mut exchange = match begun {
            Some(exchange)
                if request.transfer_tag == exchange.transfer_tag && request.task_tag == exchange.task_tag =>
            {
                exchange
            }
            // RFC 7143 11.10.3: without a tag an exchange begins, and an older one is forgotten.
            _ if request.transfer_tag == TAG_NONE => {
                Exchange { task_tag: request.task_tag, transfer_tag: TAG_NONE, request: Vec::new(), answer: Vec::new() }
            }
            _ => return self.reject(at, &pdu.header, Rejection::InvalidField, shared),
        };
        let text = pdu.data.as_deref().unwrap_or(&[]);
        let is_too_long = text.len() < pdu.header.data_bytes() || exchange.request.len() + text.len() > TEXT_MAX_BYTES;
        if is_too_long || request.continues && request.is_final {
            return self.reject(at, &pdu.header, Rejection::Protocol, shared);
        }
        exchange.request.extend_from_slice(text);
        if !request.continues {
            let asked = std::mem::take(&mut exchange.request);
            // RFC 7143 6.2: once. Each would be answered with all targets.
            if asked.split(|&byte| byte == 0).filter(|pair| pair.starts_with(b"SendTargets=")).count() > 1 {
                return self.reject(at, &pdu.header, Rejection::Protocol, shared);
            }
            self.answer_text(at, &asked, &mut exchange.answer, shared);
        }
        self.send_text(at, &request, exchange, shared);
    }

    fn send_text(&mut self, at: usize, request: &TextRequest, mut exchange: Exchange, shared: &mut Shared) {
        let room = self.connections[at].parameters.send_data_max_bytes.max(1) as usize;
        let later = exchange.answer.split_off(exchange.answer.len().min(room));
        let part = std::mem::replace(&mut exchange.answer, later);
        let continues = !exchange.answer.is_empty();
        let is_final = !continues && request.is_final;
        exchange.transfer_tag = if is_final { TAG_NONE } else { self.transfer_tag() };
        let header = TextResponse {
            is_final,
            continues,
            lun: request.lun,
            task_tag: request.task_tag,
            transfer_tag: exchange.transfer_tag,
            ..TextResponse::default()
        };
        if !is_final {
            self.connections[at].exchange = Some(exchange);
        }
        self.send_status(at, header.write(), (!part.is_empty()).then(|| part.into()), shared);
    }

    fn answer_text(&mut self, at: usize, asked: &[u8], answer: &mut Vec<u8>, shared: &Shared) {
        let wants_others = asked.split(|&byte| byte == 0).any(|pair| pair == format!("{ASKS}=Yes").as_bytes());
        for pair in asked.split(|&byte| byte == 0).filter(|pair| !pair.is_empty()) {
            let pair = String::from_utf8_lossy(pair);
            let Some((key, value)) = pair.split_once('=') else { continue };
            match key {
                "SendTargets" => self.answer_send_targets(at, (value, wants_others), answer, shared),
                ASKS => put(answer, key, if value == "Yes" { value } else { "Reject" }),
                _ => {
                    let parameters = &mut self.connections[at].parameters;
                    if let Some(reply) = receive_in_full_feature(key, value, parameters) {
                        put(answer, key, reply);
                    }
                }
            }
        }
    }

    /// RFC 7143 appendix C; and the portals that are spoken to in another way, for who wants to know of these too.
    fn answer_send_targets(
        &self,
        at: usize,
        (value, wants_others): (&str, bool),
        answer: &mut Vec<u8>,
        shared: &Shared,
    ) {
        let (connection, directory) = (&self.connections[at], &*shared.config.directory);
        let visible = directory.visible(&self.initiator, connection.peer, &connection.portal);
        let own = match &self.kind {
            SessionKind::Normal { name, .. } => Some(name.as_str()),
            SessionKind::Discovery => None,
        };
        let wanted = match (own, value) {
            (None, "All") => None,
            (None, "") | (Some(_), "All") => return put(answer, "SendTargets", "Reject"),
            (Some(own), "") => Some(own),
            (Some(own), value) if value != own => return put(answer, "SendTargets", "Reject"),
            (_, value) => Some(value),
        };
        let asks = (&self.initiator, connection.peer);
        let others = if wants_others { others(directory, asks, &connection.portal) } else { BTreeMap::new() };
        for (name, addresses) in visible.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == name.as_str()))
        {
            put(answer, "TargetName", name.as_str());
            addresses.iter().for_each(|address| put(answer, "TargetAddress", address));
            others.get(name).into_iter().flatten().for_each(|other| put(answer, TELLS, &other.to_string()));
        }
    }
}

fn put(answer: &mut Vec<u8>, key: &str, value: &str) {
    answer.extend_from_slice(format!("{key}={value}\0").as_bytes());
}
