//! How data comes from a connection to its place in memory.

/// The data that an end of a session has received, and how it came to the frames of its commands.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Movement {
    /// Bytes that have come into the frames of commands.
    pub placed_bytes: u64,
    /// Those of them that were received from the socket straight into the frame, without a copy.
    pub direct_bytes: u64,
    /// Bytes that were copied to come there, each as often as it was.
    pub copied_bytes: u64,
    /// What there is of RDMA, where the session goes by that.
    pub rdma: Option<Rdma>,
}

/// What an end of a session has of RDMA.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Rdma {
    /// Keys of memory (STags) that are good now: at an initiator those of its own memory, at a target those that it was told.
    pub stags: u64,
    /// All that there have been.
    pub stags_ever: u64,
    /// Messages that the other end may send now.
    pub credits: u64,
    /// Bytes of the longest FPDU that is sent.
    pub fpdu_max_bytes: u32,
    /// Bytes of TCP's segments (MSS), once they are known; by an adapter the most data of a packet on its path (path MTU), if it tells.
    pub segment_bytes: Option<u32>,
}

impl Movement {
    /// Adds that of a further connection.
    pub fn add(&mut self, other: &Movement) {
        self.placed_bytes += other.placed_bytes;
        self.direct_bytes += other.direct_bytes;
        self.copied_bytes += other.copied_bytes;
        match (&mut self.rdma, &other.rdma) {
            (Some(rdma), Some(other)) => rdma.add(other),
            (none, other) => *none = none.or(*other),
        }
    }

    /// What stays of it in a sum when the connection is gone.
    #[must_use]
    pub fn past(self) -> Movement {
        Movement { rdma: self.rdma.map(|rdma| Rdma { stags: 0, credits: 0, ..rdma }), ..self }
    }
}

impl Rdma {
    fn add(&mut self, other: &Rdma) {
        self.stags += other.stags;
        self.stags_ever += other.stags_ever;
        self.credits += other.credits;
        self.fpdu_max_bytes = self.fpdu_max_bytes.min(other.fpdu_max_bytes);
        self.segment_bytes = [self.segment_bytes, other.segment_bytes].into_iter().flatten().min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_gone_has_moved_data_and_opens_no_memory() {
        let rdma = Rdma { stags: 3, stags_ever: 5, credits: 7, fpdu_max_bytes: 1400, segment_bytes: Some(1448) };
        let one = Movement { placed_bytes: 10, direct_bytes: 8, copied_bytes: 4, rdma: Some(rdma) };
        let mut sum = Movement::default();
        sum.add(&one.past());
        sum.add(&Movement { rdma: Some(Rdma { fpdu_max_bytes: 1300, segment_bytes: None, ..rdma }), ..one });
        sum.add(&Movement { placed_bytes: 1, ..Movement::default() });
        let rdma = Rdma { stags_ever: 10, fpdu_max_bytes: 1300, ..rdma };
        assert_eq!(sum, Movement { placed_bytes: 21, direct_bytes: 16, copied_bytes: 8, rdma: Some(rdma) });
    }
}
