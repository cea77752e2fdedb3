-- psql "$DATABASE_URL" -v message="$(sealpost prepare bob 'order 7 is paid' --quiet)" -f order.sql
\set ON_ERROR_STOP on
begin;
create schema if not exists billing;
create table if not exists billing.paid (order_no int primary key, message uuid not null);
insert into billing.paid values (7, sealpost.send(:'message')); -- fails if the order is already paid
commit;
select s.status from billing.paid, sealpost.sent_status(message) s where order_no = 7;
