//! What may be done with a derived volume: `read+write`, `read+8Fh`.

use std::collections::BTreeSet;
use std::fmt;

use sanwire_device::AllowedOperations;
use sanwire_scsi::{OperationClass, OperationClasses};

/// What names operations, in words.
pub(super) const EXPECTED: &str = "read, write, discard, management, reservations, copy-source, copy-target, or an operation code like 8Fh (with a \
     service action: 9Eh/12h), with + between them";

/// Single operation codes that one volume may allow besides classes, at the most.
const CODES_MAX: usize = 64;

/// What may be done: classes of operations, and single ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operations {
    classes: OperationClasses,
    /// Codes, each with its service action if only that one is meant.
    codes: BTreeSet<(u8, Option<u8>)>,
}

impl Operations {
    /// Reads all values of a key; `None` when there is none. The error is what cannot be read.
    pub(super) fn parse_all(values: &[String]) -> Result<Option<Operations>, String> {
        if values.is_empty() {
            return Ok(None);
        }
        let mut operations = Operations { classes: OperationClasses::NONE, codes: BTreeSet::new() };
        for word in values.iter().flat_map(|value| value.split('+')) {
            operations.add(word).ok_or_else(|| word.to_owned())?;
        }
        Ok(Some(operations))
    }

    fn add(&mut self, word: &str) -> Option<()> {
        match OperationClass::from_word(word) {
            // It is always allowed.
            Some(OperationClass::Information) => return None,
            Some(class) => self.classes |= OperationClasses::of(class),
            None => {
                let (code, action) = match word.split_once('/') {
                    Some((code, action)) => (code, Some(hexadecimal(action)?)),
                    None => (word, None),
                };
                self.codes.insert((hexadecimal(code)?, action));
            }
        }
        (self.codes.len() <= CODES_MAX).then_some(())
    }

    /// For the device.
    pub(crate) fn allowed(&self) -> AllowedOperations {
        let classes = AllowedOperations::of(self.classes);
        self.codes.iter().fold(classes, |allowed, (code, action)| allowed.with_operation(*code, *action))
    }
}

/// `8Fh` or `0x8f`: a number without either could be decimal.
fn hexadecimal(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_suffix(['h', 'H']))?;
    let is_number = (1..=2).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| is_number)
}

/// The words for what is allowed, each by itself.
pub(crate) fn words(allowed: &AllowedOperations) -> Vec<String> {
    let classes = allowed.classes().iter().filter(|class| *class != OperationClass::Information);
    let codes = allowed.operations().map(|(code, action)| code_word(code, action));
    classes.map(|class| class.word().to_owned()).chain(codes).collect()
}

fn code_word(code: u8, action: Option<u8>) -> String {
    match action {
        Some(action) => format!("{code:02X}h/{action:02X}h"),
        None => format!("{code:02X}h"),
    }
}

impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words(&self.allowed()).join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> Result<Option<Operations>, String> {
        Operations::parse_all(&values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn classes_and_codes_are_read_and_written_again() {
        assert_eq!(parse(&[]), Ok(None), "what the parent allows");
        for (values, written) in [
            (&["read"][..], "read"),
            (&["write+read"], "read+write"),
            (&["read", "write", "read"], "read+write"),
            (
                &["reservations+copy-target+discard+management+copy-source"],
                "discard+management+reservations+copy-source+copy-target",
            ),
            (&["read+8Fh"], "read+8Fh"),
            (&["0x9e/12h", "2ah"], "2Ah+9Eh/12h"),
        ] {
            let operations = parse(values).unwrap().unwrap();
            assert_eq!(operations.to_string(), written);
            assert_eq!(parse(&[written]).unwrap(), Some(operations));
        }
    }

    #[test]
    fn what_names_no_operation_is_refused() {
        for text in
            ["", "read+", "Read", "information", "all", "8F", "100h", "h", "0x", "9Eh/", "9Eh/100h", "+8h+", "-1h"]
        {
            assert!(parse(&[text]).is_err(), "{text}");
        }
        let many: Vec<String> = (0..=CODES_MAX).map(|code| format!("{code:02X}h")).collect();
        assert!(Operations::parse_all(&many).is_err(), "more than anybody needs");
        assert!(Operations::parse_all(&many[1..]).is_ok());
    }
}
