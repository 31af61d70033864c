//! What is said of text that is no request.

use crate::front::hyperscsi::clients::NoSecret;

/// What is wrong with a request, without anything that stands in it: that may be a secret in the wrong place, which neither the answer
/// nor the audit log is to have.
#[must_use]
pub fn without_values(error: &serde_json::Error) -> String {
    // These show the value first, and last what is expected instead, which is the program's own text.
    const WITH_VALUE: [&str; 5] =
        ["invalid type", "invalid value", "invalid length", "unknown variant", "unknown field"];
    let text = error.to_string();
    let is_own = |own: &str| text.starts_with(own);
    let is_plain =
        !error.is_data() || ["missing field", "duplicate field", &NoSecret.to_string()].into_iter().any(is_own);
    if is_plain {
        return text;
    }
    let kind = WITH_VALUE.into_iter().find(|kind| is_own(kind));
    let expected = kind.and_then(|_| text.rfind(", expected ")).map_or("", |at| &text[at..]);
    format!("{}{expected}", kind.unwrap_or("invalid value"))
}
