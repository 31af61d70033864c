//! Changes of clients that are only looked at.

use super::told;
use crate::front::hyperscsi::clients::ChangeError;
use crate::manage::clients::{ClientChange, rights};
use crate::manage::slow::Step;
use crate::manage::{ManageError, Manager};

impl Manager {
    pub(super) fn rehearse_client(&mut self, change: ClientChange, force: bool) -> Result<Step, ManageError> {
        self.when_client_may_change(change, force, |manager, change| {
            let (id, client) = manager.target.clients().foreseen(change.shown()).map_err(ChangeError::from)?;
            Ok(told(match (client, change) {
                (Some(client), ClientChange::Reset(_)) => {
                    format!("client {} would be as it is configured: {}", client.shown(), rights(&client))
                }
                (Some(client), _) => format!("client {} would be served: {}", client.shown(), rights(&client)),
                (None, ClientChange::Reset(_)) => {
                    format!("client {id} would not be known any more: it would be served if `allow` permits it")
                }
                (None, _) => format!("client {id} would not be served any more, until it is added again"),
            }))
        })
    }
}
