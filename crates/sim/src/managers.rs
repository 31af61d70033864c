//! What a server of a world does when it is to be managed: it sends back what it was asked, once, and to nobody who may not ask.

use std::collections::BTreeMap;

use sanwire_buffer::Slice;
use sanwire_core::ClientId;

use crate::executor::Counts;
use crate::task::manage_request;

/// Who may manage a server.
#[derive(Clone, Debug)]
pub struct Managers {
    /// The numbers of its clients, as the world has them.
    pub numbers: BTreeMap<ClientId, usize>,
    /// So many may: the first ones.
    pub count: usize,
}

impl Managers {
    /// Does what a client asks; `None`: it may not.
    ///
    /// # Errors
    /// When that was asked by nobody, or by another client, or was done before.
    pub fn execute(
        &self,
        client: ClientId,
        request: Option<Slice>,
        counts: &mut Counts,
    ) -> Result<Option<Slice>, String> {
        let asker = self.numbers.get(&client).copied();
        let Some((operation, client)) = request.as_deref().and_then(manage_request) else {
            return Err("a request to manage the server is not what was sent".to_owned());
        };
        if asker != Some(client) {
            return Err(format!("client {client} manages as {asker:?}"));
        }
        if client >= self.count {
            return Ok(None);
        }
        let count = counts.entry(operation).or_default();
        *count += 1;
        if *count > 1 {
            return Err(format!("request {operation} to manage the server was executed {count} times"));
        }
        Ok(request)
    }
}
