//! What connections are given.

/// How an end that connects opens memory to the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Opening {
    /// By windows of the adapter (memory windows of type 2) if it has some that open nothing else; or else as
    /// [`Opening::ByRegistration`].
    #[default]
    Safely,
    /// By windows of the adapter if it has any. Those of rxe, RoCE in software, hold only against an other end that is honest.
    ByWindows,
    /// What is opened is registered by itself, as long as it is open.
    ByRegistration,
}

/// What a connection has of an adapter, and takes of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectOptions {
    /// Orders and reads under way at a time, at the most.
    pub orders_max: u32,
    /// Receives that are posted at a time, at the most.
    pub receives_max: u32,
    /// Windows that are open at a time, at the most.
    pub registrations_max: usize,
    /// How memory is opened to the other end.
    pub opening: Opening,
    /// RDMA Reads under way at a time in either direction, at the most; adapters have limits of their own.
    pub reads_max: u8,
    /// Memory from which messages and short data are sent: it is locked, from the first time on that so much is needed. No message is
    /// longer.
    pub send_bytes: usize,
    /// Memory into which little is read, from where it is copied; it is locked from the first such read on.
    pub read_bytes: usize,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            orders_max: 512,
            receives_max: 1024,
            registrations_max: 4096,
            opening: Opening::default(),
            reads_max: 128,
            send_bytes: 1 << 20,
            read_bytes: 512 << 10,
        }
    }
}

/// What a listener is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenOptions {
    /// Requests that may wait for [`crate::Listener::accept`]; more are refused.
    pub backlog: u16,
    /// Receives of one adapter that its connections share, at the most: memory for so many messages is locked when there are many
    /// connections. 0 has each connection have its own, as those by iWARP have them anyway.
    pub shared_receives_max: u32,
    /// For each connection.
    pub connection: ConnectOptions,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions { backlog: 128, shared_receives_max: 2048, connection: ConnectOptions::default() }
    }
}
