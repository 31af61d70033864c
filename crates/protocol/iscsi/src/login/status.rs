//! How a login response says whether it went well (RFC 7143 11.13.5).

/// Class and detail of a login status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(crate) enum LoginStatus {
    Success = 0x0000,
    MovedTemporarily = 0x0101,
    MovedPermanently = 0x0102,
    InitiatorError = 0x0200,
    AuthenticationFailure = 0x0201,
    AuthorizationFailure = 0x0202,
    NotFound = 0x0203,
    Removed = 0x0204,
    UnsupportedVersion = 0x0205,
    TooManyConnections = 0x0206,
    MissingParameter = 0x0207,
    CannotInclude = 0x0208,
    UnsupportedSessionType = 0x0209,
    NoSession = 0x020a,
    InvalidDuringLogin = 0x020b,
    TargetError = 0x0300,
    ServiceUnavailable = 0x0301,
    OutOfResources = 0x0302,
}

impl LoginStatus {
    const ALL: [LoginStatus; 18] = [
        LoginStatus::Success,
        LoginStatus::MovedTemporarily,
        LoginStatus::MovedPermanently,
        LoginStatus::InitiatorError,
        LoginStatus::AuthenticationFailure,
        LoginStatus::AuthorizationFailure,
        LoginStatus::NotFound,
        LoginStatus::Removed,
        LoginStatus::UnsupportedVersion,
        LoginStatus::TooManyConnections,
        LoginStatus::MissingParameter,
        LoginStatus::CannotInclude,
        LoginStatus::UnsupportedSessionType,
        LoginStatus::NoSession,
        LoginStatus::InvalidDuringLogin,
        LoginStatus::TargetError,
        LoginStatus::ServiceUnavailable,
        LoginStatus::OutOfResources,
    ];

    /// The status of this class and detail. One that is not known is its class's general one; one of no known class is
    /// the target's error.
    pub(crate) fn from_wire(class: u8, detail: u8) -> Self {
        let find = |code: u16| Self::ALL.into_iter().find(|status| *status as u16 == code);
        let general = match class {
            1 => LoginStatus::MovedTemporarily,
            2 => LoginStatus::InitiatorError,
            _ => LoginStatus::TargetError,
        };
        find(u16::from_be_bytes([class, detail])).unwrap_or(general)
    }

    /// Class and detail.
    pub(crate) fn to_wire(self) -> [u8; 2] {
        (self as u16).to_be_bytes()
    }

    /// What it means to who wanted to log in, and what to do.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            LoginStatus::Success => "it went well",
            LoginStatus::MovedTemporarily | LoginStatus::MovedPermanently => "the target is at another address",
            LoginStatus::InitiatorError => "it did not like what it was told; its log may say more",
            LoginStatus::AuthenticationFailure => "it did not accept user and secret; check both",
            LoginStatus::AuthorizationFailure => {
                "this initiator may not use it; have the initiator's name or user allowed at the target"
            }
            LoginStatus::NotFound => {
                "it has no target of this name for us at this portal; `sanwire discover iscsi://HOST` lists those it has, and where"
            }
            LoginStatus::Removed => "the target was taken away",
            LoginStatus::UnsupportedVersion => "it speaks another version of iSCSI",
            LoginStatus::TooManyConnections => "the session has too many connections",
            LoginStatus::MissingParameter => "it misses a parameter, perhaps the target's name",
            LoginStatus::CannotInclude => "the connection cannot be part of the session",
            LoginStatus::UnsupportedSessionType => "it has no sessions of this kind",
            LoginStatus::NoSession => "it does not know the session any more",
            LoginStatus::InvalidDuringLogin => "it did not expect that during a login",
            LoginStatus::TargetError => "it has failed; its log may say more",
            LoginStatus::ServiceUnavailable => "it is out of service for now; try again later",
            LoginStatus::OutOfResources => "it has no resources left; try again later",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_survive_the_wire_and_unknown_ones_keep_their_class() {
        for status in LoginStatus::ALL {
            let [class, detail] = status.to_wire();
            assert_eq!(LoginStatus::from_wire(class, detail), status);
        }
        assert_eq!(LoginStatus::from_wire(2, 0xee), LoginStatus::InitiatorError);
        assert_eq!(LoginStatus::from_wire(9, 1), LoginStatus::TargetError);
    }
}
