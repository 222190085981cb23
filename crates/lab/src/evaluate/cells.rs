use std::collections::HashMap;

use incrowd_device::Value;

/// The value of a field, small: texts are numbered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cell {
    /// A finite number.
    Number(f64),
    /// True or false.
    Flag(bool),
    /// The number of a text.
    Text(u32),
}

/// Values by the numbers of their fields, each field once. A missing field is not there.
pub(super) type Cells = Box<[(u32, Cell)]>;

/// Names in the order in which they came, numbered from 0.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    list: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    /// The number of a name, a new one if it is new.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.list.len() as u32;
        self.list.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The number of a name that is there.
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(super) fn get(&self, number: u32) -> &str {
        &self.list[number as usize]
    }

    pub(super) fn list(&self) -> &[String] {
        &self.list
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }
}

impl Cell {
    /// As a field of a feature map.
    pub(super) fn value(self, texts: &Names) -> Value {
        match self {
            Self::Number(number) => Value::Number(number),
            Self::Flag(flag) => Value::Flag(flag),
            Self::Text(text) => Value::Text(texts.get(text).to_owned()),
        }
    }
}
