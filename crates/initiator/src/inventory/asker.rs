//! Commands of the client's own, one after the other or many at once.

use std::collections::{BTreeMap, VecDeque};

use sanwire_buffer::Slice;
use sanwire_core::Lun;
use sanwire_scsi::vpd::{self, page};
use sanwire_scsi::{AdditionalSense, AnswerError, Cdb, Sense, SenseKey, Status, build};

use crate::driver::{Driver, OwnAnswer, OwnCommand, tells_of_power};
use crate::endpoint::ConnectError;
use crate::session::{Answer, Failure};

/// How often a command is given again because the unit had something else to tell first.
const ATTENTIONS_MAX: usize = 8;

/// Room for an answer.
pub(super) const ANSWER_BYTES: u16 = 4096;

/// Asks units one command after the other.
pub(super) struct Asker<'a> {
    pub(super) driver: &'a mut Driver,
    pub(super) server: &'a str,
    /// Units that were asked have said that they had no power.
    pub(super) has_lost_power: bool,
    ahead: Ahead,
}

/// Answers to commands that were given ahead of their time, by units.
#[derive(Default)]
pub(super) struct Ahead(BTreeMap<Lun, VecDeque<(Cdb, Vec<u8>)>>);

impl Ahead {
    /// The answer to this command, once.
    fn take(&mut self, lun: Lun, cdb: &Cdb) -> Option<Vec<u8>> {
        let answers = self.0.get_mut(&lun)?;
        let at = answers.iter().position(|(asked, _)| asked == cdb)?;
        answers.remove(at).map(|(_, answer)| answer)
    }
}

/// Why a command gave no answer.
pub(super) enum Refusal {
    /// The unit does not know the command, the page or the field.
    Unknown(Sense),
    /// The unit will not do it, and says what is the matter.
    Refused(Sense),
    /// Anything else.
    Failed(ConnectError),
}

impl<'a> Asker<'a> {
    pub(super) fn new(driver: &'a mut Driver, server: &'a str) -> Self {
        Asker { driver, server, has_lost_power: false, ahead: Ahead::default() }
    }

    /// Gives commands to several units, many of them at once. Their answers are there when the same commands are given one by one
    /// afterwards; a command that was not answered well is simply given again then. A unit that is in use here is left out: it is only
    /// asked in its turn.
    pub(super) fn ask_ahead(&mut self, commands: impl IntoIterator<Item = OwnCommand>) {
        let commands: Vec<_> = commands.into_iter().filter(|command| !self.driver.is_used(command.lun)).collect();
        let answers = self.driver.execute_all(&commands);
        for (OwnCommand { lun, cdb, .. }, answer) in commands.into_iter().zip(answers) {
            let Some(OwnAnswer { answer, data }) = answer else { continue };
            match Sense::parse(&answer.sense) {
                _ if answer.status == Status::Good => self.ahead.0.entry(lun).or_default().push_back((cdb, data)),
                Some(sense) if sense.key == SenseKey::UnitAttention => self.note_attention(lun, sense.additional),
                _ => {}
            }
        }
    }

    /// Forgets what was asked ahead and is not wanted any more.
    pub(super) fn forget_ahead(&mut self) {
        self.ahead = Ahead::default();
    }

    /// An answer that was asked for ahead, and is not used up by this look.
    pub(super) fn told_ahead(&self, lun: Lun, cdb: &Cdb) -> Option<&[u8]> {
        let mut answers = self.ahead.0.get(&lun)?.iter();
        answers.find(|(asked, _)| asked == cdb).map(|(_, answer)| &answer[..])
    }

    /// As [`Asker::told_ahead`], and uses it up.
    pub(super) fn take_ahead(&mut self, lun: Lun, cdb: &Cdb) -> Option<Vec<u8>> {
        self.ahead.take(lun, cdb)
    }

    fn note_attention(&mut self, lun: Lun, told: AdditionalSense) {
        self.has_lost_power |= tells_of_power(told);
        self.driver.overheard(lun, told);
    }

    pub(super) fn ask(
        &mut self,
        lun: Lun,
        command: &'static str,
        cdb: Cdb,
        answer_bytes: usize,
    ) -> Result<Vec<u8>, ConnectError> {
        self.try_ask(lun, command, cdb, answer_bytes).map_err(|refusal| match refusal {
            Refusal::Unknown(sense) | Refusal::Refused(sense) => self.failed(command, sense.to_string()),
            Refusal::Failed(error) => error,
        })
    }

    pub(super) fn try_ask(
        &mut self,
        lun: Lun,
        command: &'static str,
        cdb: Cdb,
        answer_bytes: usize,
    ) -> Result<Vec<u8>, Refusal> {
        if let Some(answer) = self.ahead.take(lun, &cdb) {
            return Ok(answer);
        }
        let own = self.settled(lun, command, (cdb, None), answer_bytes).map_err(Refusal::Failed)?;
        let Answer { status, sense } = own.answer;
        match (status, Sense::parse(&sense)) {
            (Status::Good, _) => Ok(own.data),
            (_, Some(sense)) if sense.key == SenseKey::IllegalRequest => Err(Refusal::Unknown(sense)),
            (_, Some(sense)) => Err(Refusal::Refused(sense)),
            (_, None) => Err(Refusal::Failed(self.failed(command, format!("status {status:?}")))),
        }
    }

    /// Gives a command, perhaps with data, until the unit has answered that: it may be busy, or have something else to tell first.
    pub(super) fn settled(
        &mut self,
        lun: Lun,
        command: &'static str,
        (cdb, data): (Cdb, Option<&[u8]>),
        answer_bytes: usize,
    ) -> Result<OwnAnswer, ConnectError> {
        let (mut attentions, mut busy_since) = (0, None);
        while attentions < ATTENTIONS_MAX {
            let data = data.map(|data| Slice::from(data.to_vec()));
            let own = self.driver.execute(lun, cdb, data, answer_bytes).map_err(|failure| match failure {
                // The same question would end in the same way again.
                Failure::Protocol(_) | Failure::TooLarge => self.failed(command, failure.to_string()),
                _ => ConnectError::Handshake { server: self.server.to_owned(), failure },
            })?;
            match (own.answer.status, Sense::parse(&own.answer.sense)) {
                (status, Some(sense)) if status != Status::Good && sense.key == SenseKey::UnitAttention => {
                    self.note_attention(lun, sense.additional);
                    attentions += 1;
                }
                // Who has no room for a question at the moment, or had to drop it, has not said that it is somebody else.
                (Status::Busy | Status::TaskSetFull | Status::TaskAborted, _) if self.driver.rest(&mut busy_since) => {}
                _ => return Ok(own),
            }
        }
        Err(self.failed(command, "one unit attention after the other".to_owned()))
    }

    /// A vital product data page; `None` when the unit has none such.
    pub(super) fn page(&mut self, lun: Lun, page: u8) -> Result<Option<Vec<u8>>, ConnectError> {
        let cdb = build::inquiry(Some(page), ANSWER_BYTES);
        match self.try_ask(lun, "INQUIRY", cdb, usize::from(ANSWER_BYTES)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Refusal::Unknown(_)) => Ok(None),
            Err(Refusal::Refused(sense)) => Err(self.failed("INQUIRY", sense.to_string())),
            Err(Refusal::Failed(error)) => Err(error),
        }
    }

    /// A page that a unit may do without. There are some that refuse one that they do not have with any sense data that comes to
    /// mind: so none is asked for that is not listed, and any refusal means that it is not there.
    pub(super) fn optional_page(
        &mut self,
        lun: Lun,
        listed: Option<&[u8]>,
        page: u8,
    ) -> Result<Option<Vec<u8>>, ConnectError> {
        if listed.is_some_and(|listed| !listed.contains(&page)) {
            return Ok(None);
        }
        self.optional(lun, build::inquiry(Some(page), ANSWER_BYTES))
    }

    pub(super) fn optional(&mut self, lun: Lun, inquiry: Cdb) -> Result<Option<Vec<u8>>, ConnectError> {
        match self.try_ask(lun, "INQUIRY", inquiry, usize::from(ANSWER_BYTES)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Refusal::Unknown(_) | Refusal::Refused(_)) => Ok(None),
            Err(Refusal::Failed(error)) => Err(error),
        }
    }

    /// The pages that the unit says it has; `None` when it does not say.
    pub(super) fn listed_pages(&mut self, lun: Lun) -> Result<Option<Vec<u8>>, ConnectError> {
        let list = self.optional_page(lun, None, page::SUPPORTED_PAGES)?;
        Ok(list.and_then(|list| vpd::parse_supported_pages(&list).ok()))
    }

    pub(super) fn wrong(&self, command: &'static str, error: AnswerError) -> ConnectError {
        self.failed(command, error.to_string())
    }

    pub(super) fn failed(&self, command: &'static str, problem: String) -> ConnectError {
        ConnectError::Command { server: self.server.to_owned(), command, problem }
    }
}
