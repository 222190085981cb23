-- Of both operators' databases, run once by the superuser when the database is made: the role of all nodes, and the
-- database that it owns. A role that owns its database makes its tables, and may end sessions of its own only.
\set password `cat /run/secrets/incrowd.password`
CREATE ROLE incrowd LOGIN PASSWORD :'password';
CREATE DATABASE incrowd OWNER incrowd;
