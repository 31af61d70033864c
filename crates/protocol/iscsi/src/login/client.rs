//! The initiator's end of one login, as a conversation: a request goes out, its response comes in, and so on.

use super::client_security::{ClientSecurity, SecurityKeys};
use super::exchange::{FULL_FEATURE, OPERATIONAL, SECURITY};
use super::status::LoginStatus;
use crate::client::{ClientConfig, Failure};
use crate::negotiation::{Carriage, Negotiation, NegotiationError, Position};
use crate::parameters::{ConnectionParameters, SessionParameters};
use crate::serial::Serial;
use crate::text::{SEGMENT_MAX_BYTES, TextError, TextGathering, TextWriter, parse};
use crate::wire::{LoginRequest, LoginResponse};

/// Responses of one login, at the most.
const RESPONSES_MAX: u32 = 64;

/// The data segments that we take.
const RECEIVE_DATA_MAX_BYTES: u32 = 256 << 10;

/// What we take in one message over RDMA, beyond what is written straight into memory, and what we send in one at the most: Linux' target
/// agrees to anything, and has buffers of 8 KiB.
const ISER: Carriage =
    Carriage::Iser { initiator_receive_max_bytes: 1024, target_receive_max_bytes: 8192, is_target: false };

/// The text that we take in one message of a discovery session over RDMA.
const ISER_TEXT_MAX_BYTES: u32 = 8192;

/// What a connection logs in with.
pub(crate) struct LoginPlan<'a> {
    pub(crate) config: &'a ClientConfig,
    /// The session that it joins or takes up again; zero for a new one.
    pub(crate) tsih: u16,
    /// Its number in the session.
    pub(crate) connection: u16,
    /// The number of the session's next command.
    pub(crate) command_number: Serial,
    /// Offer MD5 alone: the target refuses a list of CHAP algorithms.
    pub(crate) md5_only: bool,
    /// The connection is RDMA.
    pub(crate) is_iser: bool,
    /// All randomness comes from this: another one each time.
    pub(crate) seed: [u8; 32],
}

/// What a login has brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClientAdmission {
    /// The target's part of the session's identity.
    pub(crate) tsih: u16,
    /// What the target is called; may be empty.
    pub(crate) alias: String,
    /// The agreement on the session; of a further connection, the session's own holds.
    pub(crate) session: SessionParameters,
    /// The agreement on the connection.
    pub(crate) connection: ConnectionParameters,
    /// The status number of the last answer.
    pub(crate) status_number: u32,
    /// The next command number that the target expects.
    pub(crate) expected_command_number: u32,
    /// The highest command number that it takes.
    pub(crate) max_command_number: u32,
}

/// Why a login did not succeed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ClientRefusal {
    /// Log in there instead (`HOST[:PORT]`); for good, or this time.
    Redirected { address: String, is_permanent: bool },
    /// The target may know MD5 alone: log in again, on a new connection, with a plan that says so.
    Md5Only,
    /// It refuses us, and will go on to.
    Refused(Failure),
    /// It cannot have us now, or does not keep the rules.
    Unavailable(Failure),
}

impl From<TextError> for ClientRefusal {
    fn from(error: TextError) -> Self {
        violation(error.to_string())
    }
}

impl From<NegotiationError> for ClientRefusal {
    fn from(error: NegotiationError) -> Self {
        violation(error.to_string())
    }
}

/// The initiator's end of one login.
pub(crate) struct ClientLogin {
    /// What all requests have in common, and the last one's stages.
    request: LoginRequest,
    security: ClientSecurity,
    negotiation: Negotiation,
    gathering: TextGathering,
    /// What is to be said.
    text: TextWriter,
    output: Option<(LoginRequest, Vec<u8>)>,
    alias: String,
    responses: u32,
}

impl ClientLogin {
    /// A login that begins.
    pub(crate) fn new(plan: &LoginPlan<'_>) -> Self {
        let config = plan.config;
        let (credential, target_credential) = (config.credential.clone(), config.target_credential.clone());
        let mut login = ClientLogin {
            request: LoginRequest {
                is_immediate: true,
                current_stage: SECURITY,
                isid: config.isid.0,
                tsih: plan.tsih,
                connection: plan.connection,
                command_number: plan.command_number.0,
                ..LoginRequest::default()
            },
            security: ClientSecurity::new(credential, target_credential, plan.md5_only, plan.seed),
            negotiation: Negotiation::new(position(plan)),
            gathering: TextGathering::default(),
            text: TextWriter::default(),
            output: None,
            alias: String::new(),
            responses: 0,
        };
        login.introduce(config);
        login.speak();
        login
    }

    /// The next request with its text, whose response has to come before there is another.
    pub(crate) fn poll_transmit(&mut self) -> Option<(LoginRequest, Vec<u8>)> {
        self.output.take()
    }

    /// Takes a response with its text; tells how the login ended, once.
    pub(crate) fn handle(
        &mut self,
        response: &LoginResponse,
        segment: &[u8],
    ) -> Option<Result<ClientAdmission, ClientRefusal>> {
        self.responses += 1;
        if self.responses > RESPONSES_MAX {
            return Some(Err(violation("its login does not come to an end")));
        }
        match LoginStatus::from_wire(response.status_class, response.status_detail) {
            LoginStatus::Success => self.go_on(response, segment).transpose(),
            status if self.security.wants_md5(status) => Some(Err(ClientRefusal::Md5Only)),
            status => Some(Err(self.security.explain(status).unwrap_or_else(|| refusal(status, segment)))),
        }
    }

    /// RFC 7143 6.3.1: who we are and where to, in the first request. Nothing of it comes again: there are targets that
    /// end a login for that.
    fn introduce(&mut self, config: &ClientConfig) {
        self.text.push("InitiatorName", config.initiator.as_str());
        match &config.target {
            Some(target) => {
                self.text.push("SessionType", "Normal");
                self.text.push("TargetName", target.as_str());
            }
            None => self.text.push("SessionType", "Discovery"),
        }
        self.text.push("AuthMethod", self.security.methods());
    }

    fn go_on(&mut self, response: &LoginResponse, segment: &[u8]) -> Result<Option<ClientAdmission>, ClientRefusal> {
        self.check(response)?;
        self.gathering.add(segment)?;
        self.request.expected_status_number = response.status_number.wrapping_add(1);
        if response.continues {
            // RFC 7143 6.2: an empty request for the rest of it.
            self.output =
                Some((LoginRequest { transits: false, continues: false, next_stage: 0, ..self.request }, Vec::new()));
            return Ok(None);
        }
        if !self.text.is_empty() {
            self.speak();
            return Ok(None);
        }
        let text = self.gathering.take();
        self.listen(&parse(&text)?)?;
        if response.transits {
            if self.request.current_stage == SECURITY {
                self.security.pass()?;
            }
            if response.next_stage == FULL_FEATURE {
                return self.finish(response).map(Some);
            }
            self.request.current_stage = OPERATIONAL;
            self.text = TextWriter::default();
            self.negotiation.offers().iter().for_each(|(key, value)| self.text.push(key, value));
        }
        self.speak();
        Ok(None)
    }

    /// RFC 7143 11.13: what a response's header may say.
    fn check(&mut self, response: &LoginResponse) -> Result<(), ClientRefusal> {
        let request = &self.request;
        // The connection and the tag say whose it is: of the ISID in a response RFC 7143 says nothing, and some leave it empty.
        if response.task_tag != request.task_tag {
            return Err(violation("its login response is for somebody else"));
        }
        if response.version_active != 0 {
            return Err(violation("it speaks another version of iSCSI"));
        }
        if response.current_stage != request.current_stage {
            return Err(violation("its login response is of another stage"));
        }
        let is_wanted = request.transits && response.next_stage == request.next_stage;
        if response.transits && (response.continues || !is_wanted) {
            return Err(violation("it went to a stage of the login that was not asked for"));
        }
        Ok(())
    }

    fn listen(&mut self, pairs: &[(&str, &str)]) -> Result<(), ClientRefusal> {
        let mut keys = SecurityKeys::default();
        for &(key, value) in pairs {
            match key {
                "TargetAlias" => self.alias = value.to_owned(),
                "TargetPortalGroupTag" | "TargetAddress" => {}
                _ => match keys.take(key, value) {
                    Some(true) if self.request.current_stage == SECURITY => {}
                    Some(false) => {
                        if let Some(answer) = self.negotiation.receive(key, value)? {
                            self.text.push(key, &answer);
                        }
                    }
                    _ => return Err(violation(format!("its key {key} came twice or out of turn"))),
                },
            }
        }
        if self.request.current_stage == SECURITY { self.security.handle(&keys, &mut self.text) } else { Ok(()) }
    }

    fn finish(&mut self, response: &LoginResponse) -> Result<ClientAdmission, ClientRefusal> {
        let (mut session, connection) = self.negotiation.finish()?;
        if response.tsih == 0 {
            // RFC 7143 11.13.3 demands a number. Without one there is a session all the same, to which nobody comes back.
            if self.request.tsih != 0 || session.error_recovery_level > 0 {
                return Err(violation("it gave the session no number, by which a lost connection could come back"));
            }
            session.max_connections = 1;
        }
        // RFC 7143 13.14: the first burst is part of a burst, also where a default is larger.
        session.first_burst_bytes = session.first_burst_bytes.min(session.max_burst_bytes);
        Ok(ClientAdmission {
            tsih: response.tsih,
            alias: std::mem::take(&mut self.alias),
            session,
            connection,
            status_number: response.status_number,
            expected_command_number: response.expected_command_number,
            max_command_number: response.max_command_number,
        })
    }

    /// The next request says what is to be said, or the part of it that fits.
    fn speak(&mut self) {
        let (text, continues) = self.text.cut(SEGMENT_MAX_BYTES);
        let is_security = self.request.current_stage == SECURITY;
        let transits = !continues && (!is_security || self.security.is_ready());
        let next_stage = match (transits, is_security) {
            (false, _) => 0,
            (true, true) => OPERATIONAL,
            (true, false) => FULL_FEATURE,
        };
        self.request = LoginRequest { transits, continues, next_stage, ..self.request };
        self.output = Some((self.request, text));
    }
}

/// What we would like.
fn position(plan: &LoginPlan<'_>) -> Position {
    let wishes = plan.config.wishes;
    let session = SessionParameters {
        // Over RDMA the target reads what does not come with the command: that costs it no copy.
        initial_r2t: plan.is_iser,
        immediate_data: true,
        // The largest multiple of 4096.
        max_burst_bytes: 0xff_f000,
        first_burst_bytes: 256 << 10,
        max_outstanding_r2t: 8,
        data_pdu_in_order: true,
        data_sequence_in_order: true,
        // RDMA loses nothing but whole connections, and their memory is closed with them.
        error_recovery_level: if plan.is_iser { 0 } else { wishes.error_recovery_level.min(2) },
        max_connections: wishes.connections.max(1),
        time_to_wait_s: 0,
        time_to_retain_s: 20,
        protocol_level: 1,
        unexpected_max: 0,
    };
    Position {
        session,
        receive_data_max_bytes: if plan.is_iser { ISER_TEXT_MAX_BYTES } else { RECEIVE_DATA_MAX_BYTES },
        prefers_digests: wishes.digests,
        requires_digests: false,
        is_discovery: plan.config.target.is_none(),
        is_leading: plan.tsih == 0,
        carriage: if plan.is_iser { ISER } else { Carriage::Plain },
    }
}

/// The target breaks the rules.
pub(super) fn violation(what: impl Into<String>) -> ClientRefusal {
    ClientRefusal::Unavailable(Failure::Protocol { what: what.into() })
}

/// What a status other than success means.
fn refusal(status: LoginStatus, segment: &[u8]) -> ClientRefusal {
    let reason = status.advice().to_owned();
    match status.to_wire() {
        [1, _] => {
            let pairs = parse(segment).unwrap_or_default();
            let Some((_, address)) = pairs.iter().find(|pair| pair.0 == "TargetAddress") else {
                return violation("it has moved and does not say where to");
            };
            let is_permanent = status == LoginStatus::MovedPermanently;
            ClientRefusal::Redirected { address: (*address).to_owned(), is_permanent }
        }
        [2, 1] => ClientRefusal::Refused(Failure::NotAuthentic { reason }),
        [2, _] => ClientRefusal::Refused(Failure::Refused { reason }),
        _ => ClientRefusal::Unavailable(Failure::Refused { reason }),
    }
}
