// Porcupine's verdict about recorded histories, as a second opinion beside leasehold.testing.checkers.
//
//	porcupine HISTORY.jsonl [SECONDS]
//
// Each line is one operation on one register: {"key", "called", "returned", "what", "argument", "result"}. `returned` is
// null for a call whose outcome is unknown: it may have taken effect at any later time, or never. `what` is read, write
// or cas; the argument of a cas is [expected, new]. One line of JSON is printed for each key:
// {"key", "verdict": "Ok" | "Illegal" | "Unknown"}. SECONDS bounds the search for each key.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Key      string          `json:"key"`
	Called   int64           `json:"called"`
	Returned *int64          `json:"returned"`
	What     string          `json:"what"`
	Argument json.RawMessage `json:"argument"`
	Result   json.RawMessage `json:"result"`
}

// operation has values as JSON text, so that null, numbers and strings compare alike.
type operation struct {
	what          string
	known         bool
	value         string // of a read: its result; of a write: its argument
	expected, new string // of a cas
	succeeded     bool
}

func step(state, input, _ interface{}) (bool, interface{}) {
	present, op := state.(string), input.(operation)
	switch op.what {
	case "read":
		return !op.known || present == op.value, present
	case "write":
		return true, op.value
	}
	if !op.known { // placed where it had no effect, it did not happen
		if present == op.expected {
			return true, op.new
		}
		return true, present
	}
	if op.succeeded {
		return present == op.expected, op.new
	}
	return present != op.expected, present
}

func decode(each line) (porcupine.Operation, error) {
	op := operation{what: each.What, known: each.Returned != nil}
	switch each.What {
	case "read":
		op.value = string(each.Result)
	case "write":
		op.value = string(each.Argument)
	case "cas":
		var pair []json.RawMessage
		if err := json.Unmarshal(each.Argument, &pair); err != nil || len(pair) != 2 {
			return porcupine.Operation{}, fmt.Errorf("a cas of %q has the argument %s", each.Key, each.Argument)
		}
		op.expected, op.new = string(pair[0]), string(pair[1])
		op.succeeded = string(each.Result) == "true"
	default:
		return porcupine.Operation{}, fmt.Errorf("unknown operation %q", each.What)
	}
	returned := int64(math.MaxInt64)
	if each.Returned != nil {
		returned = *each.Returned
	}
	return porcupine.Operation{Input: op, Call: each.Called, Output: nil, Return: returned}, nil
}

func read(path string) (map[string][]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := map[string][]porcupine.Operation{}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 1<<20), 1<<24)
	for scanner.Scan() {
		var each line
		if err := json.Unmarshal(scanner.Bytes(), &each); err != nil {
			return nil, err
		}
		op, err := decode(each)
		if err != nil {
			return nil, err
		}
		op.ClientId = len(found[each.Key])
		found[each.Key] = append(found[each.Key], op)
	}
	return found, scanner.Err()
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: porcupine HISTORY.jsonl [SECONDS]")
		os.Exit(2)
	}
	limit := 60.0
	if len(os.Args) > 2 {
		limit, _ = strconv.ParseFloat(os.Args[2], 64)
	}
	histories, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "porcupine:", err)
		os.Exit(2)
	}
	model := porcupine.Model{
		Init:  func() interface{} { return "null" },
		Step:  step,
		Equal: func(a, b interface{}) bool { return a.(string) == b.(string) },
	}
	keys := make([]string, 0, len(histories))
	for key := range histories {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	out := json.NewEncoder(os.Stdout)
	for _, key := range keys {
		verdict := porcupine.CheckOperationsTimeout(model, histories[key], time.Duration(limit*float64(time.Second)))
		_ = out.Encode(map[string]string{"key": key, "verdict": string(verdict)})
	}
}
