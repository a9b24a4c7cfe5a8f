module millrace/cluster

go 1.26.0
