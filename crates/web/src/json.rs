//! JSON as it was meant: no key of an object stands there twice, and an integer may be written with a fraction of zero.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A value as it stands in a body.
pub(crate) struct Strict(pub(crate) Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    /// `4096.0` is an integer to JSON Schema, and 4096 here.
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        /// From here on not every integer is a double.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let is_integer = value.fract() == 0.0 && value.abs() <= EXACT;
        #[expect(clippy::cast_possible_truncation, reason = "it is an integer below 2^53")]
        let integer = value as i64;
        Ok(if is_integer { integer.into() } else { value.into() })
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(value)) = values.next_element()? {
            array.push(value);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((key, Strict(value))) = fields.next_entry::<String, Strict>()? {
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("duplicate field"));
            }
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        serde_json::from_str(text).map(|Strict(value)| value.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_number_that_is_an_integer_may_be_written_with_a_fraction() {
        let text = r#"{"a":[4096.0,-1.0,0.5,1e3],"b":1e300,"c":[null,true,"x",18446744073709551615]}"#;
        let own = r#"{"a":[4096,-1,0.5,1000],"b":1e+300,"c":[null,true,"x",18446744073709551615]}"#;
        assert_eq!(read(text).unwrap(), own);
        let Strict(value) = serde_json::from_str("4096.0").unwrap();
        assert_eq!(serde_json::from_value::<u16>(value).unwrap(), 4096);
    }

    #[test]
    fn a_key_stands_there_once() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"c":2,"a":3}}]"#] {
            assert!(read(text).unwrap_err().starts_with("duplicate field"), "{text}");
        }
        assert!(read(r#"[{"a":1},{"a":2}]"#).is_ok());
    }
}
