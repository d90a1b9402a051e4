-- Run one action of a sink atomically, for the driver with the newest epoch only.
--
-- KEYS  the job's ledger; the streams of late elements and of dead letters; the counter of jobs; a part of a batch
-- ARGV  the action; the epoch; the width of a version; then the action's arguments
--
-- The ledger is a hash: epoch, job (its number among all jobs that wrote here), last (its newest batch), staged (how
-- many parts of a batch are staged), applying (the part to apply next), batch:N (an entry each).
--
-- A part is five texts: its expiry in ms, or empty; rows to write, as alternating lines of key and value; rows to
-- delete, as alternating lines of key and version; late elements and dead letters, a line each.

local MARK = '{"@version":"'
local WIDTH, WINDOW = tonumber(ARGV[3]), 40
local BOUND, JOB, BATCH = 20, 8, 14 -- digits of a version: see encode_rows.py
local ledger, late, dead, jobs, part = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local call = redis.call
local AT_ONCE = 1000 -- an even number: keys and values alternate

-- Whether a version may replace another. Of two windows with the same end, such as merged sessions, the later job and
-- batch wins; otherwise versions compare as texts.
local function may_follow(there, version)
  if there == '' then return true end
  local one, other = string.sub(there, 1, WINDOW), string.sub(version, 1, WINDOW)
  if one == other or string.sub(one, 1, BOUND) ~= string.sub(other, 1, BOUND) then return there <= version end
  local function job_and_batch(text)
    return string.sub(text, WINDOW + 1, WINDOW + JOB) .. string.sub(text, -BATCH)
  end
  return job_and_batch(there) <= job_and_batch(version)
end

local function field(name)
  return call('HGET', ledger, name)
end

local function lines(text)
  local at = 1
  return function()
    local stop = string.find(text, '\n', at, true)
    if not stop then return nil end
    local found = string.sub(text, at, stop - 1)
    at = stop + 1
    return found
  end
end

-- The version under a key; '' if there is no value, and nil if the value is not of this sink.
local function held(key)
  local found = redis.pcall('GETRANGE', key, 0, #MARK + WIDTH - 1)
  if type(found) == 'table' then return nil end
  if found == '' then return '' end
  if string.sub(found, 1, #MARK) ~= MARK then return nil end
  return string.sub(found, #MARK + 1)
end

-- The first of every two lines.
local function keys_of(rows)
  local keys, at = {}, 1
  local stop = string.find(rows, '\n', at, true)
  while stop do
    keys[#keys + 1] = string.sub(rows, at, stop - 1)
    at = string.find(rows, '\n', stop + 1, true) + 1
    stop = string.find(rows, '\n', at, true)
  end
  return keys
end

-- The versions under the keys of rows, whose keys are unique; and the answer if some keys hold foreign values: the
-- numbers of their rows. Most rows are new, so existence is checked for many keys at once.
local function versions(rows)
  local found, refused, keys = {}, { 'refused' }, keys_of(rows)
  for first = 1, #keys, AT_ONCE do
    local last = math.min(first + AT_ONCE - 1, #keys)
    local some = call('EXISTS', unpack(keys, first, last)) > 0
    for number = first, last do
      local there = ''
      if some then there = held(keys[number]) end
      if there == nil then refused[#refused + 1] = number - 1 end
      found[number] = there or ''
    end
  end
  return found, #refused > 1 and refused
end

local function apply(batch, found, expiry, rows, gone, later, letters)
  local number, newer, next_line = 0, {}, lines(rows)
  for key in next_line do
    local value = next_line()
    number = number + 1
    if may_follow(found[number], string.sub(value, #MARK + 1, #MARK + WIDTH)) then
      if expiry ~= '' then
        call('SET', key, value, 'PX', expiry)
      else
        newer[#newer + 1], newer[#newer + 2] = key, value
      end
    end
  end
  for at = 1, #newer, AT_ONCE do call('MSET', unpack(newer, at, math.min(at + AT_ONCE - 1, #newer))) end
  next_line = lines(gone)
  for key in next_line do
    local version = next_line()
    local there = held(key)
    if there and string.sub(there, 1, WINDOW) == string.sub(version, 1, WINDOW) and there <= version then
      call('DEL', key)
    end
  end
  for row in lines(later) do call('XADD', late, '*', 'row', row, 'batch', batch) end
  for row in lines(letters) do call('XADD', dead, '*', 'row', row, 'batch', batch) end
end

local acts = {}

function acts.write(batch, ...)
  local found, refused = versions((select(2, ...)))
  if refused then return refused end
  apply(batch, found, ...)
  return { 'done' }
end

function acts.stage(number, ...)
  local _, refused = versions((select(2, ...)))
  if refused then return refused end
  call('DEL', part)
  call('RPUSH', part, ...)
  call('HSET', ledger, 'staged', number + 1)
  return { 'done' }
end

-- `expected` is the newest batch that the driver knows, `parts` the number of staged parts of this one.
function acts.commit(batch, expected, entry, oldest, parts, ...)
  if (field('last') or '') ~= expected or field('applying') then return { 'moved' } end
  local found, refused = versions((select(2, ...)))
  if refused then return refused end
  apply(batch, found, ...)
  call('HSET', ledger, 'last', batch, 'batch:' .. batch, entry)
  if parts ~= '0' then call('HSET', ledger, 'applying', 0) end
  if oldest ~= '' then
    for _, name in ipairs(call('HKEYS', ledger)) do
      local number = string.match(name, '^batch:(%d+)$')
      if number and tonumber(number) <= tonumber(oldest) then call('HDEL', ledger, name) end
    end
  end
  return { 'done' }
end

-- Apply a part of a committed batch. Values that other clients wrote under its keys in the meantime are overwritten.
function acts.apply(number)
  if field('applying') ~= number then return { 'moved' } end
  local texts = call('LRANGE', part, 0, -1)
  apply(field('last'), versions(texts[2]), unpack(texts))
  call('UNLINK', part)
  if number + 1 < tonumber(field('staged')) then
    call('HSET', ledger, 'applying', number + 1)
  else
    call('HDEL', ledger, 'applying', 'staged')
  end
  return { 'done' }
end

-- Discard a part of a batch that was not committed.
function acts.forget(number)
  call('UNLINK', part)
  if number == '0' then call('HDEL', ledger, 'staged') end
  return { 'done' }
end

-- Write once on this connection, so that WAITAOF can confirm that all earlier writes are on disk.
function acts.touch()
  call('HSET', ledger, 'touched', ARGV[2])
  return { 'done' }
end

if ARGV[1] == 'look' then
  local last = field('last')
  return {
    field('epoch'), field('job'), field('applying'), field('staged'), last,
    last and field('batch:' .. last), field('batch:' .. ARGV[2]),
  }
end
-- A script that fails midway is not rolled back. So this tries every command that an ACL may forbid, on a key of its
-- own, and returns the types of the streams.
if ARGV[1] == 'try' then
  for _, command in ipairs({ { 'SET', '' }, { 'MSET', '' }, { 'RPUSH', '' }, { 'XADD', '*', 'row', '' } }) do
    call(command[1], part, unpack(command, 2))
    call(command[1] == 'SET' and 'DEL' or 'UNLINK', part)
  end
  call('EXISTS', part)
  call('GETRANGE', part, 0, 0)
  call('LRANGE', part, 0, 0)
  return { call('TYPE', late)['ok'], call('TYPE', dead)['ok'] }
end
if ARGV[1] == 'claim' then
  if not field('job') then call('HSET', ledger, 'job', call('INCR', jobs)) end
  return call('HINCRBY', ledger, 'epoch', 1)
end
if field('epoch') ~= ARGV[2] then return { 'fenced' } end
return acts[ARGV[1]](unpack(ARGV, 4))
