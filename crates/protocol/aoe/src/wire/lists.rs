//! The arguments of MAC mask and of reserve/release: lists of stations.

use sanwire_core::MacAddress;

/// What is to be done with the list of stations that may use a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaskOrder {
    /// Tell it.
    Read,
    /// Change it.
    Edit,
}

/// One change of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Directive {
    /// None.
    Nothing,
    /// This station may use it.
    Add(MacAddress),
    /// This one may not.
    Delete(MacAddress),
}

/// A request for the list. What it has of a longer argument is padding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaskRequest {
    /// What is to be done.
    pub order: MaskOrder,
    /// The changes, in their order.
    pub directives: Vec<Directive>,
}

/// Why a list was not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MaskError {
    /// Something.
    Unspecified = 1,
    /// There is no such directive.
    BadDirective = 2,
    /// The list has no room.
    Full = 3,
}

const MASK_BYTES: usize = 4;
const DIRECTIVE_BYTES: usize = 8;

impl MaskRequest {
    /// Reads a request; `None` when it is none, `Some(Err)` when a directive is none.
    #[must_use]
    pub fn parse(argument: &[u8]) -> Option<Result<MaskRequest, MaskError>> {
        let ([_, order, _, count], rest) = argument.split_first_chunk::<MASK_BYTES>()?;
        let order = match order {
            0 => MaskOrder::Read,
            1 => MaskOrder::Edit,
            _ => return None,
        };
        let entries = rest.get(..usize::from(*count) * DIRECTIVE_BYTES)?.as_chunks::<DIRECTIVE_BYTES>().0;
        let directive = |[_, code, mac @ ..]: &[u8; DIRECTIVE_BYTES]| match code {
            0 => Ok(Directive::Nothing),
            1 => Ok(Directive::Add(MacAddress(*mac))),
            2 => Ok(Directive::Delete(MacAddress(*mac))),
            _ => Err(MaskError::BadDirective),
        };
        let directives: Result<Vec<_>, _> = entries.iter().map(directive).collect();
        Some(directives.map(|directives| MaskRequest { order, directives }))
    }
}

/// The response: the list as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MaskAnswer<'a> {
    /// What was to be done.
    pub order: MaskOrder,
    /// Why it was not.
    pub error: Option<MaskError>,
    /// The stations; as many as a frame takes, and 255 at the most.
    pub stations: &'a [MacAddress],
}

impl MaskAnswer<'_> {
    /// The argument as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let error = self.error.map_or(0, |error| error as u8);
        let mut bytes = vec![0, self.order as u8, error, self.stations.len() as u8];
        bytes.extend(self.stations.iter().flat_map(|mac| [&[0, 1][..], &mac.0].concat()));
        bytes
    }
}

/// What is to be done with a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReserveOrder {
    /// Tell who has it.
    Read,
    /// Reserve it for these stations, or release it, unless somebody else has it.
    Set,
    /// The same, whoever has it.
    ForceSet,
}

/// A request about a reservation, or its response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserve {
    /// What is to be done.
    pub order: ReserveOrder,
    /// The stations: none releases it.
    pub stations: Vec<MacAddress>,
}

impl Reserve {
    /// Reads it; what follows the stations is padding.
    #[must_use]
    pub fn parse(argument: &[u8]) -> Option<Reserve> {
        let ([order, count], rest) = argument.split_first_chunk::<2>()?;
        let order = match order {
            0 => ReserveOrder::Read,
            1 => ReserveOrder::Set,
            2 => ReserveOrder::ForceSet,
            _ => return None,
        };
        let stations = rest.get(..usize::from(*count) * 6)?.as_chunks::<6>().0;
        Some(Reserve { order, stations: stations.iter().map(|mac| MacAddress(*mac)).collect() })
    }

    /// The argument as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.order as u8, self.stations.len() as u8];
        bytes.extend(self.stations.iter().flat_map(|mac| mac.0));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

    #[test]
    fn lists_of_stations_have_the_bytes_of_the_specification() {
        let edit = [0, 1, 0, 2, 0, 1, 2, 0, 0, 0, 0, 9, 0, 2, 2, 0, 0, 0, 0, 9, 0, 0];
        let request = MaskRequest::parse(&edit).unwrap().unwrap();
        assert_eq!(request.directives, [Directive::Add(MAC), Directive::Delete(MAC)]);
        let answer = MaskAnswer { order: request.order, error: Some(MaskError::Full), stations: &[MAC] };
        assert_eq!(answer.to_bytes(), [0, 1, 3, 1, 0, 1, 2, 0, 0, 0, 0, 9]);
        assert_eq!(MaskRequest::parse(&[0, 1, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0]), Some(Err(MaskError::BadDirective)));
        assert_eq!(MaskRequest::parse(&edit[..12]), None, "a directive is missing");
        assert_eq!(MaskRequest::parse(&[0, 2, 0, 0]), None);
    }

    #[test]
    fn a_reservation_may_be_padded() {
        let reserve = Reserve { order: ReserveOrder::ForceSet, stations: vec![MAC] };
        let mut bytes = reserve.to_bytes();
        assert_eq!(bytes, [2, 1, 2, 0, 0, 0, 0, 9]);
        bytes.resize(36, 0);
        assert_eq!(Reserve::parse(&bytes), Some(reserve));
        assert_eq!((Reserve::parse(&[1, 1, 2, 0]), Reserve::parse(&[3, 0]), Reserve::parse(&[1])), (None, None, None));
    }
}
