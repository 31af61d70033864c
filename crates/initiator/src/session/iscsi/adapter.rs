//! Connections that an RDMA adapter carries: the protocol has them, and the driver waits.

use std::io;

use sanwire_core::Instant;
use sanwire_io::Interest;
use sanwire_iscsi::ConnectionId;
use sanwire_rdma::Connection;

use super::{Channel, Iscsi, Socket, Stage};

impl Iscsi {
    /// The adapter has begun to connect. The login waits in the datamover until that is done; when it cannot be, that says why.
    pub(super) fn connect_by_adapter(
        &mut self,
        Connection { queue_pair, events }: Connection,
        connection: ConnectionId,
        now: Instant,
    ) -> io::Result<()> {
        self.poller.add_stream(&events, connection.0, Interest::READABLE)?;
        let socket = Socket { channel: Channel::Adapter(events), stage: Stage::Open, watched: Interest::READABLE };
        self.sockets.insert(connection, socket);
        self.protocol.connected_over(connection, sanwire_iser::initiator_by(queue_pair), now);
        Ok(())
    }

    /// Lets the protocol ask the adapter of a connection what has happened; tells whether anything has passed.
    pub(super) fn ask_adapter(&mut self, connection: ConnectionId, now: Instant) -> usize {
        let before = self.protocol.carried(connection);
        self.protocol.filled(connection, 0, now);
        if let Some(why) = self.protocol.take_trouble() {
            tracing::warn!("a connection by RDMA is lost: {why}");
        }
        usize::from(self.protocol.carried(connection) != before)
    }

    /// Closes what was to be closed and is done: what is left is sent, or it takes too long.
    pub(super) fn close_those_done(&mut self, now: Instant) {
        let protocol = &mut self.protocol;
        self.sockets.retain(|connection, socket| {
            let Stage::Closing { until } = socket.stage else { return true };
            let is_done = match &socket.channel {
                Channel::Stream(stream) => !stream.wants_write(),
                Channel::Adapter(_) => protocol.is_parted(*connection),
            };
            let is_over = is_done || now >= until;
            if is_over {
                protocol.connection_lost(*connection, now);
            }
            !is_over
        });
    }
}
