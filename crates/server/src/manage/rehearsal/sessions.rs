//! What is only looked at of sessions, access states and pools.

use super::told;
use crate::manage::access::PortState;
use crate::manage::slow::Step;
use crate::manage::{Answer, ManageError, Manager};

impl Manager {
    pub(super) fn rehearse_forgetting(&self, name: &str) -> Result<Step, ManageError> {
        self.check_forget_pool(name)?;
        Ok(told(format!("pool {name} would be forgotten: its directory would stay as it is")))
    }

    pub(super) fn rehearse_access_state(
        &self,
        group: u16,
        state: PortState,
        target: Option<&str>,
    ) -> Result<Step, ManageError> {
        let kept = &self.kept.access_states;
        let now = |place: &str| {
            let known = kept.get(place).and_then(|groups| groups.get(&group)).copied();
            known.unwrap_or(PortState::ActiveOptimized)
        };
        let places = self.places_of(group, target)?.into_iter().filter(|place| now(place) != state);
        let lines = places
            .map(|place| format!("{place}: group {group} would be {}, and is {}", state.name(), now(&place).name()));
        Ok(Step::Done(Answer::Changed(lines.collect())))
    }

    pub(super) fn rehearse_dropping(&self, client: &str) -> Result<Step, ManageError> {
        let principal = self.principal(client)?;
        Ok(self.counting(move |_, counted| {
            let sessions = counted.iter().flat_map(|shard| &shard.connections);
            match sessions.filter(|connection| connection.principal == principal).count() {
                0 => Err(ManageError::NoSession(principal)),
                1 => Ok(told(format!("the session of {principal} would be ended"))),
                count => Ok(told(format!("{count} sessions of {principal} would be ended"))),
            }
        }))
    }

    pub(in crate::manage) fn rehearse_dropping_session(
        &self,
        session: &str,
        revision: Option<u64>,
    ) -> Result<Step, ManageError> {
        let (number, session) = (self.session_number(session)?, session.to_owned());
        Ok(self.counting(move |manager, counted| {
            let owner = manager.owner_of(&session, number, &counted)?;
            manager.check_sessions_of(&owner, revision)?;
            Ok(told(format!("the session {session} of {owner} would be ended")))
        }))
    }

    pub(super) fn rehearse_pause(&self, client: &str, is_paused: bool) -> Result<Step, ManageError> {
        let principal = self.principal(client)?;
        let line = match (is_paused, self.paused.contains(&principal)) {
            (true, true) => format!("{principal} waits already"),
            (true, false) => {
                self.check_pause()?;
                format!("{principal} would wait, until it is resumed or the server ends")
            }
            (false, true) => format!("{principal} would go on"),
            (false, false) => format!("{principal} is not paused"),
        };
        Ok(told(line))
    }
}
