//! The tables as Parquet files, for those who read them with data frames.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use serde::de::DeserializeOwned;

use super::{CurvePoint, ExperimentError, Row};

/// One column: its name, and its values where there are any.
enum Column {
    Text(&'static str, Vec<Option<ByteArray>>),
    Integer(&'static str, Vec<Option<i64>>),
    Number(&'static str, Vec<Option<f64>>),
    Flag(&'static str, Vec<Option<bool>>),
}

/// Writes `table.parquet` and `curves.parquet` beside the CSV files of a finished experiment, with the same columns.
pub fn write_parquet(directory: &Path) -> Result<[PathBuf; 2], ExperimentError> {
    let rows: Vec<Row> = read(&directory.join("table.csv"))?;
    let points: Vec<CurvePoint> = read(&directory.join("curves.csv"))?;
    let paths = [directory.join("table.parquet"), directory.join("curves.parquet")];
    write(&paths[0], &table_columns(&rows))?;
    write(&paths[1], &curve_columns(&points))?;
    Ok(paths)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, ExperimentError> {
    let failed = |error: csv::Error| ExperimentError::Io { path: path.into(), error: error.into() };
    let mut reader = csv::Reader::from_path(path).map_err(failed)?;
    reader.deserialize().collect::<Result<_, _>>().map_err(failed)
}

fn table_columns(rows: &[Row]) -> Vec<Column> {
    let text = |name, pick: fn(&Row) -> &str| {
        Column::Text(name, rows.iter().map(|row| Some(pick(row).into())).collect())
    };
    let integer = |name, pick: fn(&Row) -> Option<u64>| {
        Column::Integer(name, rows.iter().map(|row| pick(row).map(|v| v as i64)).collect())
    };
    let number =
        |name, pick: fn(&Row) -> Option<f64>| Column::Number(name, rows.iter().map(pick).collect());
    vec![
        text("algorithm", |row| &row.algorithm),
        text("variant", |row| &row.variant),
        text("environment", |row| &row.environment),
        integer("dimension", |row| Some(row.dimension.into())),
        integer("arms", |row| Some(row.arms.into())),
        integer("horizon", |row| Some(row.horizon)),
        number("central_epsilon", |row| row.central_epsilon),
        number("local_epsilon", |row| row.local_epsilon),
        integer("batch_size", |row| row.batch_size.map(Into::into)),
        integer("seed", |row| Some(row.seed)),
        number("exploration", |row| row.exploration),
        number("regret", |row| row.regret),
        number("regret_random", |row| row.regret_random),
        number("reward", |row| Some(row.reward)),
        integer("people", |row| Some(row.people)),
        integer("batches", |row| Some(row.batches)),
        integer("model_versions", |row| Some(row.model_versions)),
        number("epsilon_local_certified", |row| row.epsilon_local_certified),
        number("epsilon_central_certified", |row| row.epsilon_central_certified),
        number("delta", |row| row.delta),
        Column::Flag("certified", rows.iter().map(|row| Some(row.certified)).collect()),
        number("noise_std", |row| row.noise_std),
    ]
}

fn curve_columns(points: &[CurvePoint]) -> Vec<Column> {
    let integer = |name, pick: fn(&CurvePoint) -> u64| {
        Column::Integer(name, points.iter().map(|point| Some(pick(point) as i64)).collect())
    };
    vec![
        integer("run", |point| point.run),
        integer("people", |point| point.people),
        Column::Number("regret", points.iter().map(|point| Some(point.regret)).collect()),
    ]
}

fn write(path: &Path, columns: &[Column]) -> Result<(), ExperimentError> {
    let fields: String = columns
        .iter()
        .map(|column| match column {
            Column::Text(name, _) => format!("optional byte_array {name} (utf8); "),
            Column::Integer(name, _) => format!("optional int64 {name}; "),
            Column::Number(name, _) => format!("optional double {name}; "),
            Column::Flag(name, _) => format!("optional boolean {name}; "),
        })
        .collect();
    let write = || -> Result<(), ParquetError> {
        let schema = Arc::new(parse_message_type(&format!("message table {{ {fields} }}"))?);
        let properties = Arc::new(WriterProperties::builder().build());
        let mut file = SerializedFileWriter::new(File::create(path)?, schema, properties)?;
        let mut group = file.next_row_group()?;
        for column in columns {
            match column {
                Column::Text(_, values) => write_column::<ByteArrayType>(&mut group, values)?,
                Column::Integer(_, values) => write_column::<Int64Type>(&mut group, values)?,
                Column::Number(_, values) => write_column::<DoubleType>(&mut group, values)?,
                Column::Flag(_, values) => write_column::<BoolType>(&mut group, values)?,
            }
        }
        group.close()?;
        file.close()?;
        Ok(())
    };
    let failed = |error| ExperimentError::Io { path: path.into(), error: io::Error::other(error) };
    write().map_err(failed)
}

fn write_column<T: DataType>(
    group: &mut parquet::file::writer::SerializedRowGroupWriter<'_, File>,
    values: &[Option<T::T>],
) -> Result<(), ParquetError> {
    let present: Vec<T::T> = values.iter().flatten().cloned().collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(&present, Some(&levels), None)?;
        column.close()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::{
        file::reader::FileReader, file::serialized_reader::SerializedFileReader,
        record::RowAccessor,
    };

    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let directory =
            std::env::temp_dir().join(format!("incrowd-parquet-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(
            directory.join("table.csv"),
            "algorithm,variant,environment,dimension,arms,horizon,central_epsilon,local_epsilon,batch_size,seed,exploration,regret,regret_random,reward,people,batches,model_versions,epsilon_local_certified,epsilon_central_certified,delta,certified,noise_std\n\
             sblb,default,synthetic,5,10,100,1.0,,300,7,0.2,1.5,30.0,60.0,100,1,1,7.9,0.9,1e-6,true,48.3\n",
        )
        .unwrap();
        std::fs::write(directory.join("curves.csv"), "run,people,regret\n0,10,0.5\n0,100,1.5\n")
            .unwrap();
        let [table, curves] = write_parquet(&directory).unwrap();
        let rows = |path: &Path| {
            let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
            reader.get_row_iter(None).unwrap().collect::<Result<Vec<_>, _>>().unwrap()
        };
        let table = rows(&table);
        assert_eq!((table.len(), table[0].len()), (1, 22));
        assert_eq!(table[0].get_string(0).unwrap(), "sblb");
        assert!((table[0].get_double(11).unwrap() - 1.5).abs() < 1e-12);
        assert!(table[0].get_double(7).is_err(), "unlimited is a missing value");
        assert!(table[0].get_bool(20).unwrap());
        assert_eq!(rows(&curves)[1].get_long(1).unwrap(), 100);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
