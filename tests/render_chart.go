// Renders a Helm chart as helm does, with the same engine and the same functions (text/template and sprig), where helm itself is
// not to be had: `go run render_chart.go FOLDER RELEASE [VALUES.yaml]`. Prints one YAML stream. Subcharts, hooks and lookups are not known.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func readTable(path string) map[string]interface{} {
	text, err := os.ReadFile(path)
	check(err)
	table := map[string]interface{}{}
	check(yaml.Unmarshal(text, &table))
	return table
}

func merge(into, from map[string]interface{}) {
	for key, value := range from {
		inner, isTable := value.(map[string]interface{})
		known, wasTable := into[key].(map[string]interface{})
		if isTable && wasTable {
			merge(known, inner)
		} else {
			into[key] = value
		}
	}
}

func main() {
	folder, release := os.Args[1], os.Args[2]
	values := readTable(filepath.Join(folder, "values.yaml"))
	if len(os.Args) > 3 {
		merge(values, readTable(os.Args[3]))
	}
	chart := readTable(filepath.Join(folder, "Chart.yaml"))
	data := map[string]interface{}{
		"Values":  values,
		"Chart":   map[string]interface{}{"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
		"Release": map[string]interface{}{"Name": release, "Namespace": "default", "Service": "Helm"},
	}
	root := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	delete(functions, "env")
	delete(functions, "expandenv")
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text bytes.Buffer
		err := root.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	functions["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	root.Funcs(functions)
	paths, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	check(err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		_, err = root.New(filepath.Base(path)).Parse(string(text))
		check(err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var text bytes.Buffer
		check(root.ExecuteTemplate(&text, name, data))
		if name == "NOTES.txt" {
			fmt.Fprint(os.Stderr, text.String())
			continue
		}
		fmt.Printf("---\n%s\n", text.String())
	}
}
