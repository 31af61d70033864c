//! The target's side of the conversation of a login: requests and their answers, stage by stage (RFC 7143 6.3).

use std::net::IpAddr;

use rand_chacha::ChaCha20Rng;
use sanwire_core::quota::ISCSI_CONNECTIONS_OF_SESSION;

use super::client_security::SecurityKeys;
use super::identity::Identity;
use super::security::Security;
use super::status::LoginStatus;
use super::{Directory, Portal, PortalCarrier, SessionKind};
use crate::negotiation::{Carriage, Negotiation, NegotiationError, Position};
use crate::parameters::{ConnectionParameters, SessionParameters};
use crate::text::{SEGMENT_MAX_BYTES, TextError, TextGathering, TextWriter, parse};
use crate::wire::LoginRequest;

/// The stages of a login (RFC 7143 11.12.3).
pub(super) const SECURITY: u8 = 0;
pub(super) const OPERATIONAL: u8 = 1;
pub(super) const FULL_FEATURE: u8 = 3;

/// What a target takes, at the most.
const TARGET: SessionParameters = SessionParameters {
    initial_r2t: false,
    immediate_data: true,
    // All that the key can say: what an initiator offers is what it hears, and some take any other answer for a failure.
    max_burst_bytes: 0xff_ffff,
    first_burst_bytes: 256 << 10,
    max_outstanding_r2t: 16,
    data_pdu_in_order: false,
    data_sequence_in_order: false,
    error_recovery_level: 2,
    max_connections: ISCSI_CONNECTIONS_OF_SESSION.limit as u16,
    time_to_wait_s: 0,
    time_to_retain_s: 20,
    protocol_level: 2,
    unexpected_max: 0,
};

/// The data segments that a target takes.
const RECEIVE_DATA_MAX_BYTES: u32 = 256 << 10;

/// What a target takes over RDMA: the data of a command is read at once, and comes whole or not at all.
const ISER_TARGET: SessionParameters = SessionParameters { max_outstanding_r2t: 1, error_recovery_level: 0, ..TARGET };

/// The same by an adapter. Each Data-Out that nobody has asked for would take one of its receives, and no window says how many may come:
/// where none is left an adapter of iWARP ends the connection, and others have the initiator try again, a few times.
const ADAPTER_TARGET: SessionParameters = SessionParameters { initial_r2t: true, ..ISER_TARGET };

/// What goes in one message over RDMA, beyond what is written straight into memory.
const ISER: Carriage = Carriage::Iser {
    initiator_receive_max_bytes: ISER_SEND_MAX_BYTES,
    target_receive_max_bytes: ISER_RECEIVE_MAX_BYTES,
    is_target: true,
};

/// The data of a message that a target takes over RDMA: what comes with a command. More is read from the initiator's memory.
const ISER_RECEIVE_MAX_BYTES: u32 = 4096;

/// The data of a message that it sends, as far as initiators agree.
const ISER_SEND_MAX_BYTES: u32 = 8192;

/// The same for a discovery session: it has one connection and keeps nothing, and only text comes in it.
const DISCOVERY: (SessionParameters, u32) =
    (SessionParameters { error_recovery_level: 0, max_connections: 1, ..TARGET }, SEGMENT_MAX_BYTES as u32);

/// Why a login is refused.
#[derive(Debug)]
pub(super) struct Refusal {
    /// For the initiator.
    pub(super) status: LoginStatus,
    /// For the log.
    pub(super) reason: String,
    /// More for the initiator.
    pub(super) text: TextWriter,
}

impl Refusal {
    pub(super) fn new(status: LoginStatus, reason: impl Into<String>) -> Self {
        Refusal { status, reason: reason.into(), text: TextWriter::default() }
    }
}

impl From<TextError> for Refusal {
    fn from(error: TextError) -> Self {
        Refusal::new(LoginStatus::InitiatorError, error.to_string())
    }
}

impl From<NegotiationError> for Refusal {
    fn from(error: NegotiationError) -> Self {
        Refusal::new(LoginStatus::InitiatorError, error.to_string())
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// It goes on.
    Continue {
        text: Vec<u8>,
        /// The text goes on in the next answer.
        continues: bool,
        /// The next stage begins.
        transits: bool,
    },
    /// It is over, with this text.
    Admit { text: Vec<u8>, agreement: Box<Agreement> },
}

/// What a login has brought.
#[derive(Debug)]
pub(super) struct Agreement {
    pub(super) initiator: crate::name::IscsiName,
    pub(super) alias: String,
    pub(super) user: Option<String>,
    pub(super) kind: SessionKind,
    pub(super) connection: ConnectionParameters,
    pub(super) session: SessionParameters,
}

/// An initiator that has said who it is.
struct Known {
    identity: Identity,
    security: Security,
    negotiation: Negotiation,
    has_introduced: bool,
}

/// The conversation.
pub(super) struct Exchange {
    portal: Portal,
    peer: IpAddr,
    first: Option<LoginRequest>,
    stage: u8,
    gathering: TextGathering,
    answers: TextWriter,
    known: Option<Box<Known>>,
    random: ChaCha20Rng,
}

impl Exchange {
    pub(super) fn new(portal: Portal, peer: IpAddr, random: ChaCha20Rng) -> Self {
        let (gathering, answers) = (TextGathering::default(), TextWriter::default());
        Exchange { portal, peer, first: None, stage: SECURITY, gathering, answers, known: None, random }
    }

    /// Whether a login request has arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.first.is_some()
    }

    /// Answers a request.
    pub(super) fn handle(
        &mut self,
        request: &LoginRequest,
        segment: &[u8],
        directory: &dyn Directory,
    ) -> Result<Answer, Refusal> {
        self.check(request)?;
        self.gathering.add(segment)?;
        if request.continues {
            // RFC 7143 6.2: nothing but an empty answer, until the text is complete.
            return Ok(Answer::Continue { text: Vec::new(), continues: false, transits: false });
        }
        let text = self.gathering.take();
        let pairs = parse(&text)?;
        let mut known = match self.known.take() {
            Some(known) => known,
            None => self.meet(&pairs, request, directory)?,
        };
        self.converse(&mut known, &pairs, request)?;
        let (text, continues) = self.answers.cut(SEGMENT_MAX_BYTES);
        let transits = request.transits && !continues && known.may_pass(self.stage, directory)?;
        if transits && request.next_stage == FULL_FEATURE {
            return Ok(Answer::Admit { text, agreement: Box::new(known.finish()?) });
        }
        if transits {
            self.stage = request.next_stage;
        }
        self.known = Some(known);
        Ok(Answer::Continue { text, continues, transits })
    }

    /// RFC 7143 6.3 and 11.12: what a request's header may say.
    fn check(&mut self, request: &LoginRequest) -> Result<(), Refusal> {
        let wrong = |reason: &str| Err(Refusal::new(LoginStatus::InitiatorError, reason));
        if request.version_min > 0 {
            let reason = format!("it speaks no version of iSCSI before {}", request.version_min);
            return Err(Refusal::new(LoginStatus::UnsupportedVersion, reason));
        }
        let first = *self.first.get_or_insert_with(|| {
            self.stage = request.current_stage;
            *request
        });
        let identity = |request: &LoginRequest| (request.isid, request.tsih, request.connection, request.task_tag);
        if identity(request) != identity(&first) {
            return wrong("its identity changed during the login");
        }
        if request.current_stage != self.stage || request.current_stage > OPERATIONAL {
            return wrong("its request is of another stage of the login");
        }
        if !request.transits {
            return Ok(());
        }
        let is_legal = [OPERATIONAL, FULL_FEATURE].contains(&request.next_stage) && request.next_stage > self.stage;
        match (request.continues, is_legal) {
            (false, true) => Ok(()),
            (true, _) => wrong("it wants to go on before its text is complete"),
            (_, false) => wrong("it wants to go to a stage that does not follow"),
        }
    }

    /// RFC 7143 6.3.1: the first text says who it is.
    fn meet(
        &mut self,
        pairs: &[(&str, &str)],
        request: &LoginRequest,
        directory: &dyn Directory,
    ) -> Result<Box<Known>, Refusal> {
        let identity = Identity::find(pairs, self.peer, &self.portal, directory)?;
        let is_discovery = identity.kind == SessionKind::Discovery;
        if !is_discovery {
            // RFC 7143 13.9: in the first answer.
            self.answers.push("TargetPortalGroupTag", &self.portal.group_tag.to_string());
        }
        let (session, receive_data_max_bytes) = match (is_discovery, self.portal.carrier) {
            (true, _) => DISCOVERY,
            (false, PortalCarrier::Adapter) => (ADAPTER_TARGET, ISER_RECEIVE_MAX_BYTES),
            (false, PortalCarrier::Iwarp) => (ISER_TARGET, ISER_RECEIVE_MAX_BYTES),
            (false, PortalCarrier::Tcp) => (TARGET, RECEIVE_DATA_MAX_BYTES),
        };
        let negotiation = Negotiation::new(Position {
            session,
            receive_data_max_bytes,
            prefers_digests: false,
            requires_digests: identity.requires_digests,
            is_discovery,
            is_leading: request.tsih == 0,
            carriage: if self.portal.carrier.is_rdma() { ISER } else { Carriage::Plain },
        });
        let security = Security::new(identity.authentication.clone(), self.random.clone());
        Ok(Box::new(Known { identity, security, negotiation, has_introduced: false }))
    }

    fn converse(&mut self, known: &mut Known, pairs: &[(&str, &str)], request: &LoginRequest) -> Result<(), Refusal> {
        let answers = &mut self.answers;
        let mut keys = SecurityKeys::default();
        for &(key, value) in pairs {
            if known.identity.confirms(key, value)? {
                continue;
            }
            match key {
                "InitiatorAlias" => known.identity.alias = value.to_owned(),
                // A target's own, and what only a session has.
                "TargetAlias" | "TargetAddress" | "TargetPortalGroupTag" | "SendTargets" => {
                    answers.push(key, "Reject");
                }
                _ => match keys.take(key, value) {
                    Some(true) if self.stage == SECURITY => {}
                    // RFC 7143 12.1 has it in the security stage alone, but there are initiators that leave that out and say it
                    // here. It changes nothing: who has not shown who it is must do without, below.
                    Some(true) if key == "AuthMethod" => answers.push(key, "NotUnderstood"),
                    Some(false) => {
                        if let Some(answer) = known.negotiation.receive(key, value)? {
                            answers.push(key, &answer);
                        }
                    }
                    _ => {
                        let reason = format!("its key {key} came twice or out of turn");
                        return Err(Refusal::new(LoginStatus::InitiatorError, reason));
                    }
                },
            }
        }
        if self.stage == SECURITY {
            known.security.handle(&keys, answers).map_err(|refusal| known.identity.named(refusal))?;
        } else {
            // RFC 7143 6.3.2: who leads straight to the operational stage has shown nothing, and that must do.
            known.security.pass().map_err(|refusal| known.identity.named(refusal))?;
        }
        if self.stage == OPERATIONAL || request.transits && request.next_stage == FULL_FEATURE {
            known.introduce(answers);
        }
        if self.stage == OPERATIONAL && !known.negotiation.has_declared() {
            let (key, value) = known.negotiation.declare();
            answers.push(key, &value);
        }
        Ok(())
    }
}

impl Known {
    /// RFC 7143 13.6: what the target is called.
    fn introduce(&mut self, answers: &mut TextWriter) {
        let is_first = !std::mem::replace(&mut self.has_introduced, true);
        if is_first && !self.identity.target_alias.is_empty() {
            answers.push("TargetAlias", &self.identity.target_alias);
        }
    }

    /// Whether the stage is done. In the security stage that depends on who it is.
    fn may_pass(&self, stage: u8, directory: &dyn Directory) -> Result<bool, Refusal> {
        if stage != SECURITY {
            return Ok(true);
        }
        let Some(user) = self.security.pass()? else { return Ok(false) };
        let Identity { initiator, peer, kind, .. } = &self.identity;
        match (user, kind) {
            (Some(user), SessionKind::Normal { target, name })
                if !directory.permits_user(*target, (initiator, *peer), user) =>
            {
                let reason = format!("{initiator} wants {name}: the user {user} may not use it");
                Err(Refusal::new(LoginStatus::AuthorizationFailure, reason))
            }
            _ => Ok(true),
        }
    }

    fn finish(self) -> Result<Agreement, Refusal> {
        let user = self.security.pass()?.flatten().map(str::to_owned);
        let (session, connection) = self.negotiation.finish()?;
        let Identity { initiator, alias, kind, .. } = self.identity;
        Ok(Agreement { initiator, alias, user, kind, connection, session })
    }
}
